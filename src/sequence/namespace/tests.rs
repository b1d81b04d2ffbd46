//! The configurations that a namespace may have, and the sections of its keys.

use super::*;

#[test]
fn a_name_that_is_empty_long_or_has_a_slash_is_refused() {
    assert_eq!(check_name(""), Err(InvalidNamespace::EmptyName));
    assert_eq!(check_name(&"x".repeat(65)), Err(InvalidNamespace::LongName(65)));
    assert_eq!(check_name("a/b"), Err(InvalidNamespace::BadCharacter("a/b".into(), '/')));
    assert_eq!(check_name("message-box.v2_x"), Ok(()));
}

#[test]
fn a_configuration_that_cannot_work_is_refused_and_the_error_names_the_field_and_its_value() {
    let good = NamespaceConfig::new("book");
    assert_eq!(good.check(), Ok(()));
    let refused = |change: fn(&mut NamespaceConfig)| {
        let mut config = good.clone();
        change(&mut config);
        config.check().unwrap_err().to_string()
    };
    assert!(refused(|c| c.step = 0).contains("step is 0"));
    assert!(refused(|c| c.step_min = Some(10_001)).contains("step_min is 10001"));
    assert!(refused(|c| c.step_max = Some(9_999)).contains("step_max is 9999"));
    assert!(refused(|c| c.step_max = Some(1 << 63)).contains("step_max is"));
    assert!(
        refused(|c| (c.step_max, c.increment) = (Some(1 << 40), 1 << 40)).contains("number space")
    );
    assert!(refused(|c| c.increment = 0).contains("increment is 0"));
    assert!(refused(|c| c.start = 0).contains("start is 0"));
    assert!(refused(|c| c.max = u64::MAX).contains("max is"));
    assert!(refused(|c| (c.start, c.max) = (11, 10)).contains("start is 11"));
    assert!(refused(|c| c.section_size = 0).contains("section_size is 0"));
    assert!(refused(|c| (c.step, c.increment) = (1 << 40, 1 << 40)).contains("number space"));
    assert!(
        refused(|c| (c.key_kind, c.section_size) = (KeyKind::Name, 2))
            .contains("section_size is 2")
    );
    let gapless = refused(|c| (c.gapless, c.section_size) = (true, 2));
    assert!(gapless.contains("section_size is 2, but a gapless namespace"));
    let gapless = refused(|c| (c.gapless, c.step_min) = (true, Some(7)));
    assert!(gapless.contains("step_min is 7, but a gapless namespace"));
    let gapless = refused(|c| (c.gapless, c.step_max) = (true, Some(10_000)));
    assert!(gapless.contains("step_max is 10000, but a gapless namespace"));
    let with_format = |change: fn(&mut NamespaceConfig)| {
        let mut config = NamespaceConfig { format: Some("snowflake".into()), ..good.clone() };
        assert_eq!(config.check(), Ok(()));
        change(&mut config);
        config.check().unwrap_err().to_string()
    };
    assert!(with_format(|c| c.gapless = true).starts_with("gapless is true, but the ids"));
    assert!(with_format(|c| c.section_size = 2).starts_with("section_size is 2, but the ids"));
    assert!(with_format(|c| c.increment = 100).starts_with("increment is 100, but the ids"));
}

/// Steps count numbers, not distances: a step of 1 makes one number available, whatever the increment.
#[test]
fn a_step_that_is_smaller_than_the_increment_works() {
    let chapters =
        NamespaceConfig { step: 1, increment: 100, start: 100, ..NamespaceConfig::new("chapter") };
    assert_eq!(chapters.check(), Ok(()));
    let record = crate::sequence::SectionRecord::default();
    let raise = crate::sequence::CeilingRaise { numbers: 1, unused_max: 1, step: 1, up_to: 0 };
    let (_, chunk) = record.bump(chapters.progression(), 1, raise).unwrap();
    assert_eq!((chunk.old, chunk.new), (0, 100));
}

#[test]
fn ids_share_a_section_with_their_neighbours_within_section_size() {
    let config = NamespaceConfig::fresh_cluster()[1].clone();
    let uid = Namespace::new(NamespaceId(2), config);
    let section = |id| uid.section_of(Key::Id(id)).key;
    assert_eq!(section(0), section(99_999));
    assert_ne!(section(99_999), section(100_000));
    assert_eq!(section(u64::from(u32::MAX)), SectionKey::Id(42_949));
}
