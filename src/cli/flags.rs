//! A message of the public API as the arguments of a command: their names, kinds and help are those of its fields in `proto`.

use clap::{
    Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
    error::ErrorKind,
    value_parser,
};
use prost_types::{FieldDescriptorProto, field_descriptor_proto::Type};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::proto::{Operation, PUBLIC_API, name_of};

/// The request of an operation. Its first field stands alone on the command line, and must; each other one is a flag. A text
/// must be given unless its field is `optional`.
#[derive(Debug)]
pub struct Flags<M>(pub M);

/// The fields of a request, and its name.
fn fields<M: Operation>() -> (String, &'static [FieldDescriptorProto]) {
    // A request is named for its method.
    let name = format!("{}Request", M::METHOD.rsplit('/').next().unwrap_or_default());
    let fields = &PUBLIC_API.messages[&name].field;
    (name, fields)
}

fn help(of: &str, part: &str) -> String {
    let about = PUBLIC_API.about_part(of, part).unwrap_or_default();
    about.trim_end_matches('.').replace('`', "")
}

fn argument(of: &str, (nth, field): (usize, &'static FieldDescriptorProto)) -> Arg {
    let name = field.name();
    let argument = Arg::new(name).help(help(of, name)).value_name(name.to_uppercase());
    let argument = match nth {
        0 => argument.required(true),
        _ => argument.long(name.replace('_', "-")),
    };
    match field.r#type() {
        Type::Bool if !field.proto3_optional() => argument.num_args(0).action(ArgAction::SetTrue),
        Type::Bool => argument.value_parser(value_parser!(bool)),
        Type::String => argument.required(!field.proto3_optional()),
        Type::Uint64 => argument.value_parser(value_parser!(u64)),
        Type::Enum => argument.value_parser(values(name_of(field.type_name()))),
        _ => argument,
    }
}

/// The values of an enumeration, without what their names begin with: `name` for `KEY_KIND_NAME`.
fn values(of: &str) -> impl TypedValueParser<Value = String> + use<> {
    let all = &PUBLIC_API.enums[of].value;
    let prefix = all[0].name().trim_end_matches("UNSPECIFIED");
    let values = all[1..].iter().map(|value| {
        let name = value.name().trim_start_matches(prefix).to_lowercase();
        PossibleValue::new(name).help(help(of, value.name()))
    });
    PossibleValuesParser::new(values).map(move |name| format!("{prefix}{}", name.to_uppercase()))
}

impl<M: Operation + DeserializeOwned> Args for Flags<M> {
    fn augment_args(command: Command) -> Command {
        let (of, fields) = fields::<M>();
        command.args(fields.iter().enumerate().map(|field| argument(&of, field)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<M: Operation + DeserializeOwned> FromArgMatches for Flags<M> {
    fn from_arg_matches(given: &ArgMatches) -> Result<Self, clap::Error> {
        let value = |field: &FieldDescriptorProto| -> Option<Value> {
            let name = field.name();
            match field.r#type() {
                Type::Bool => given.get_one::<bool>(name).map(|value| json!(value)),
                Type::Uint64 => given.get_one::<u64>(name).map(|value| json!(value)),
                _ => given.get_one::<String>(name).map(|value| json!(value)),
            }
        };
        let named = |field| Some((FieldDescriptorProto::name(field).to_owned(), value(field)?));
        let message: Value = fields::<M>().1.iter().filter_map(named).collect();
        let message = serde_json::from_value(message);
        message.map(Flags).map_err(|why| clap::Error::raw(ErrorKind::InvalidValue, why))
    }

    fn update_from_arg_matches(&mut self, given: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(given)?;
        Ok(())
    }
}
