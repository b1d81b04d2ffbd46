//! Which fields of a namespace are checked before it is proposed.
//!
//! Each field of both messages is named, without `..`: the compiler leads here from a field that is new. One that is named
//! with `_` is checked elsewhere: by `NamespaceConfig::check`, with the format (`SequenceWish`), or there is nothing to check.

use crate::{
    proto::v1,
    sequence::{
        InvalidNamespace, check_description, check_limits, check_section_size, check_steps,
    },
};

/// Refuses what no namespace may be created with.
///
/// # Errors
/// [`InvalidNamespace`] of the first field that is outside of its limits.
pub(super) fn check_created(asked: &v1::CreateNamespaceRequest) -> Result<(), InvalidNamespace> {
    let v1::CreateNamespaceRequest {
        name: _,
        key_kind: _,
        step,
        step_min,
        step_max,
        increment: _,
        start: _,
        max: _,
        section_size,
        count_max,
        keys_max,
        gapless: _,
        request_id_optional: _,
        redis_strings: _,
        format: _,
        description,
    } = asked;
    check_steps(*step, *step_min, *step_max)?;
    check_limits(*count_max, *keys_max, 1)?;
    check_section_size(*section_size)?;
    check_description(description.as_deref())
}

/// Refuses what no namespace may be changed to. A limit of 0 is none.
///
/// # Errors
/// [`InvalidNamespace`] of the first field that is outside of its limits.
pub(super) fn check_updated(asked: &v1::UpdateNamespaceRequest) -> Result<(), InvalidNamespace> {
    let v1::UpdateNamespaceRequest {
        namespace: _,
        key_kind: _,
        step,
        step_min,
        step_max,
        increment: _,
        start: _,
        max: _,
        section_size,
        count_max,
        keys_max,
        request_id_optional: _,
        redis_strings: _,
        description,
    } = asked;
    check_steps(*step, *step_min, *step_max)?;
    check_limits(*count_max, *keys_max, 0)?;
    check_section_size(*section_size)?;
    check_description(description.as_deref())
}
