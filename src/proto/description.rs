//! The public API, as its descriptors have it: messages, enumerations, and the comments on all of them. The description for
//! HTTP and the flags of the command line are made of it.

use std::{collections::BTreeMap, sync::LazyLock};

use prost::Message;
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorSet};

/// The public API's descriptors, for the reflection service and [`PUBLIC_API`].
pub const PUBLIC_DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ratchet.v1.bin"));

/// The public API.
pub static PUBLIC_API: LazyLock<Description> = LazyLock::new(Description::read);

/// The messages, enumerations and comments of some files.
#[derive(Debug, Default)]
pub struct Description {
    /// The messages, by name. The entries of maps are among them.
    pub messages: BTreeMap<String, DescriptorProto>,
    /// The enumerations, by name.
    pub enums: BTreeMap<String, EnumDescriptorProto>,
    /// By the name of a message, or that of a field, value or method behind that of what it belongs to: `Message.field`.
    comments: BTreeMap<String, String>,
}

impl Description {
    fn read() -> Self {
        let mut read = Description::default();
        let files = FileDescriptorSet::decode(PUBLIC_DESCRIPTORS).expect("the build wrote them");
        for file in files.file {
            for location in file.source_code_info.iter().flat_map(|info| &info.location) {
                let places: Vec<usize> = location.path.iter().map(|at| *at as usize).collect();
                let of = match places[..] {
                    [4, at] => file.message_type[at].name().to_owned(),
                    [4, at, 2, nth] => {
                        let of = &file.message_type[at];
                        format!("{}.{}", of.name(), of.field[nth].name())
                    }
                    [5, at, 2, nth] => {
                        let of = &file.enum_type[at];
                        format!("{}.{}", of.name(), of.value[nth].name())
                    }
                    [6, at, 2, nth] => {
                        let of = &file.service[at];
                        format!("{}.{}", of.name(), of.method[nth].name())
                    }
                    _ => continue,
                };
                let lines: Vec<_> = location.leading_comments().lines().map(str::trim).collect();
                read.comments.insert(of, lines.join(" "));
            }
            for message in file.message_type {
                // The nested messages are the entries of maps.
                let entries = message.nested_type.iter().cloned();
                read.messages.extend(entries.map(|entry| (entry.name().to_owned(), entry)));
                read.messages.insert(message.name().to_owned(), message);
            }
            let enums = file.enum_type.into_iter();
            read.enums.extend(enums.map(|one| (one.name().to_owned(), one)));
        }
        read
    }

    /// The comment on a message.
    pub fn about(&self, message: &str) -> Option<&str> {
        self.comments.get(message).map(String::as_str)
    }

    /// The comment on a field of a message, a value of an enumeration, or a method of a service.
    pub fn about_part(&self, of: &str, part: &str) -> Option<&str> {
        self.about(&format!("{of}.{part}"))
    }
}

/// The name of the type of a field, without its package.
pub fn name_of(type_name: &str) -> &str {
    type_name.rsplit('.').next().unwrap_or_default()
}
