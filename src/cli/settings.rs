//! The settings of `ratchet start`: flags first, then environment variables, then the file, then defaults. A setting that is a
//! secret has no flag.
//!
//! Their list is in [`crate::node::settings`]. Only `log` and `log_format` are added here: the node does not
//! use them.

use std::{
    ffi::OsString,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum, builder::PossibleValue};
use serde::Deserialize;

use super::command_error::CommandError;
use crate::{
    node::{
        Config,
        config::FenceKind,
        settings::{
            ClientTls, OptionalListen, PeerTls, Peers, Sample, SegmentSizes, for_each_setting,
        },
        text_table::{SecretTable, TextTable},
    },
    sequence::NodeId,
};

/// The default log filter. Openraft's warnings are left out: it warns of every message to a peer that is
/// down, some twenty times a second. The node itself logs when a leader is lost or found.
pub const LOG_FILTER: &str = "info,openraft=error";

macro_rules! settings {
    ($(
        $(#[$($help:tt)*])*
        $variable:literal [$($flag:tt)*] =>
            $name:ident: $type:ty as $given:ty = $default:expr $(, $range:expr)?;
    )*
    secret: $(
        $(#[$($secret_help:tt)*])*
        $secret_variable:literal =>
            $secret:ident: $secret_type:ty as $secret_given:ty = $secret_default:expr;
    )*) => {
        /// The settings that one source gives: the command line with the environment, or the file.
        #[derive(Debug, Clone, Default, Args, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct Settings {
            $(
                $(#[$($help)*])*
                #[arg(long, env = $variable, $($flag)*)]
                $name: Option<$given>,
            )*
            $(
                $(#[$($secret_help)*])*
                #[arg(skip)]
                $secret: Option<$secret_given>,
            )*
            /// The filter of the log, as tracing writes it [default: info,openraft=error]
            #[arg(long, env = "RATCHET_LOG")]
            pub log: Option<String>,
            /// The format of the log [default: human]
            #[arg(long, env = "RATCHET_LOG_FORMAT")]
            pub log_format: Option<LogFormat>,
        }

        impl Settings {
            /// Fills the settings that are missing here from `other`.
            pub fn or(self, other: Settings) -> Settings {
                Settings {
                    $($name: self.$name.or(other.$name),)*
                    $($secret: self.$secret.or(other.$secret),)*
                    log: self.log.or(other.log),
                    log_format: self.log_format.or(other.log_format),
                }
            }

            /// Takes the settings that have no flag from their variables.
            ///
            /// # Errors
            /// If a variable is no UTF-8. Its value is not shown.
            pub fn with_secrets(
                self, variable: impl Fn(&'static str) -> Option<OsString>,
            ) -> Result<Settings, CommandError> {
                $(let $secret = match text_of($secret_variable, variable($secret_variable))? {
                    Some(text) => Some(<$secret_given>::from(&*text)),
                    None => self.$secret,
                };)*
                Ok(Settings { $($secret,)* ..self })
            }

            /// The settings that have no flag, and their variables.
            #[cfg(test)]
            fn secrets() -> Vec<(&'static str, &'static str)> {
                vec![$((stringify!($secret), $secret_variable),)*]
            }

            /// The node's configuration: these settings, and the defaults of those that are missing.
            pub fn config(self) -> Config {
                let default = Config::default();
                Config {
                    $($name: self.$name.map_or(default.$name, |given| given.into()),)*
                    $($secret: self.$secret.map_or(default.$secret, |given| given.into()),)*
                    dev: default.dev,
                }
            }
        }
    };
}

for_each_setting!(settings);

/// The text of a variable that holds a secret, if it is set.
///
/// # Errors
/// If it is no UTF-8.
fn text_of(variable: &str, value: Option<OsString>) -> Result<Option<String>, CommandError> {
    let text = value.map(OsString::into_string).transpose();
    text.map_err(|_| CommandError::config(format!("the variable {variable} is not valid UTF-8")))
}

impl ValueEnum for FenceKind {
    fn value_variants<'a>() -> &'a [Self] {
        &[FenceKind::Lease, FenceKind::Quorum]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            FenceKind::Lease => PossibleValue::new("lease")
                .help("A majority acknowledged this leader within its lease"),
            FenceKind::Quorum => {
                PossibleValue::new("quorum").help("A majority confirms each batch of answers")
            }
        })
    }
}

impl ValueEnum for ClientTls {
    fn value_variants<'a>() -> &'a [Self] {
        &[ClientTls::Off, ClientTls::Accept, ClientTls::Require]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            ClientTls::Off => PossibleValue::new("off").help("No connection speaks TLS"),
            ClientTls::Accept => PossibleValue::new("accept").help("A connection may"),
            ClientTls::Require => PossibleValue::new("require").help("Each connection must"),
        })
    }
}

impl ValueEnum for PeerTls {
    fn value_variants<'a>() -> &'a [Self] {
        &[PeerTls::Off, PeerTls::Accept, PeerTls::Send, PeerTls::Require]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            PeerTls::Off => PossibleValue::new("off").help("No connection speaks TLS"),
            PeerTls::Accept => PossibleValue::new("accept")
                .help("A connection from a peer may; this node connects without"),
            PeerTls::Send => PossibleValue::new("send")
                .help("A connection from a peer may; this node connects with it"),
            PeerTls::Require => PossibleValue::new("require").help("Each connection must"),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Lines for people
    Human,
    /// One JSON object per line
    Json,
}

/// Reads the settings in the configuration file.
///
/// # Errors
/// If the file cannot be read, is not TOML, or has an unknown setting or a malformed value.
pub fn read_file(path: &Path) -> Result<Settings, CommandError> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        CommandError::config(format!("cannot read the configuration {}: {error}", path.display()))
    })?;
    toml::from_str(&text).map_err(|error| CommandError::config(invalid(path, &text, &error)))
}

/// The text about a file with a fault. The file may hold secrets, so none of its lines is shown.
fn invalid(path: &Path, text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before
        .map_or(String::new(), |before| format!(" in line {}", before.matches('\n').count() + 1));
    format!("the configuration {} is not valid{line}: {}", path.display(), error.message())
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, os::unix::ffi::OsStringExt};

    use clap::FromArgMatches;

    use super::*;

    #[test]
    fn a_flag_overrides_the_file_and_the_file_overrides_the_default() {
        let file: Settings =
            toml::from_str("node_id = 2\nlease_ms = 150\nfence = \"quorum\"").unwrap();
        let flags = Settings { node_id: Some(3), ..Settings::default() };
        let config = flags.or(file).config();
        assert_eq!((config.node_id, config.lease_ms, config.heartbeat_ms), (3, 150, 50));
        assert_eq!(config.fence, FenceKind::Quorum);
    }

    #[test]
    fn an_unknown_setting_in_the_file_is_refused_and_named() {
        let error = toml::from_str::<Settings>("lease = 5").unwrap_err().to_string();
        assert!(error.contains("lease"), "{error}");
    }

    #[test]
    fn what_is_wrong_in_the_file_is_told_by_its_line_and_without_what_stands_there() {
        for (text, says) in [
            ("node_id = 2\nlease = 5", ": unknown field `lease`"),
            ("[tinyid_tokens]\n\ntest = \"secret", " in line 3: "),
            ("[tinyid_tokens]\ntest = \"secret\" secret", " in line 2: "),
            ("tinyid_tokens = [\"secret\"]", ": write a table of texts"),
            ("[tinyid_tokens]\ntest = [\"secret\"]", ": write a table of texts"),
        ] {
            let error = toml::from_str::<Settings>(text).unwrap_err();
            let told = invalid(Path::new("ratchet.toml"), text, &error);
            assert!(told.starts_with("the configuration ratchet.toml is not valid"), "{told}");
            assert!(told.contains(says) && !told.contains("secret"), "{told}");
        }
    }

    #[test]
    fn the_file_of_the_package_is_valid_also_with_each_line_that_is_left_out() {
        let file = include_str!("../../dist/ratchet.toml");
        let settings: Settings = toml::from_str(file).unwrap();
        let config = settings.config();
        assert_eq!(config.data_dir, Path::new("/var/lib/ratchet"));
        let usual = Config { data_dir: config.data_dir.clone(), ..Config::default() };
        assert_eq!(config, usual, "it opens nothing to strangers");
        // Prose begins with a space.
        let line = |line: &str| match line.strip_prefix('#') {
            Some(left_out) if left_out.starts_with(|c: char| c != ' ') => format!("{left_out}\n"),
            Some(_) => String::new(),
            None => format!("{line}\n"),
        };
        let all: String = file.lines().map(line).collect();
        let config = toml::from_str::<Settings>(&all).unwrap().config();
        assert!(config.insecure && config.peers.len() == 3, "{all}");
        config.check().unwrap();
    }

    #[test]
    fn the_file_takes_peers_as_a_list_or_a_table() {
        let list: Settings = toml::from_str("peers = \"1=a:1,2=b:2\"").unwrap();
        let table: Settings = toml::from_str("[peers]\n1 = \"a:1\"\n2 = \"b:2\"").unwrap();
        assert_eq!(list.peers, table.peers);
        assert_eq!(list.config().peers[&2], "b:2");
    }

    #[test]
    fn the_file_and_flags_take_the_tables_of_other_generators() {
        let file: Settings = toml::from_str("[tinyid_tokens]\ntest = \"one two\"").unwrap();
        let command = Settings::augment_args(clap::Command::new("start"));
        let matches = command.get_matches_from(["start", "--leaf-tags", "order=leaf:order,a=b:1"]);
        let flags = Settings::from_arg_matches(&matches).unwrap();
        let config = flags.or(file).config();
        assert_eq!(config.leaf_tags["order"], "leaf:order");
        assert_eq!(config.leaf_tags["a"], "b:1");
        assert_eq!(config.tinyid_tokens["test"], "one two");
    }

    #[test]
    fn a_secret_has_no_flag_and_its_variable_overrides_the_file() {
        assert_eq!(Settings::secrets(), [("tinyid_tokens", "RATCHET_TINYID_TOKENS")]);
        let command = Settings::augment_args(clap::Command::new("start"));
        assert!(command.get_arguments().all(|arg| arg.get_id() != "tinyid_tokens"));
        let refused = command.try_get_matches_from(["start", "--tinyid-tokens=test=token"]);
        let told = refused.unwrap_err().to_string();
        assert!(told.contains("--tinyid-tokens") && !told.contains("test=token"), "{told}");
        let file = || -> Settings { toml::from_str("[tinyid_tokens]\ntest = \"one\"").unwrap() };
        let of = |value: Option<OsString>| {
            let settings = Settings::default().with_secrets(|name| {
                assert_eq!(name, "RATCHET_TINYID_TOKENS");
                value.clone()
            });
            settings.map(|settings| settings.or(file()).config().tinyid_tokens)
        };
        assert_eq!(of(None).unwrap()["test"], "one");
        assert_eq!(of(Some("test=two three".into())).unwrap()["test"], "two three");
        let no_text = OsString::from_vec(b"test=secret\xff".to_vec());
        let told = format!("{:?}", of(Some(no_text)).unwrap_err());
        assert!(told.contains("RATCHET_TINYID_TOKENS") && !told.contains("secret"), "{told}");
    }

    /// The words in a setting's help about its default: a value, or words.
    fn default_in_help(arg: &clap::Arg) -> Option<String> {
        let help = arg.get_help()?.to_string().replace('\n', " ");
        let (_, default) = help.split_once("[default: ")?;
        default.strip_suffix(']').map(str::to_owned)
    }

    /// The settings whose help names a value as their default, and that value.
    fn defaults_in_help() -> Vec<(String, String)> {
        let command = Settings::augment_args(clap::Command::new("start"));
        let in_help = |arg: &clap::Arg| {
            let value = default_in_help(arg).filter(|default| !default.contains(' '));
            value.map(|value| (arg.get_id().to_string(), value))
        };
        command.get_arguments().filter_map(in_help).collect()
    }

    #[test]
    fn the_defaults_in_the_help_are_the_defaults() {
        let given = defaults_in_help();
        assert!(given.len() > 15, "{given:?}");
        let flags =
            given.iter().map(|(name, value)| format!("--{}={value}", name.replace('_', "-")));
        let command = Settings::augment_args(clap::Command::new("start"));
        let matches = command.get_matches_from(["start".to_owned()].into_iter().chain(flags));
        let settings = Settings::from_arg_matches(&matches).unwrap();
        assert_eq!(settings.log.as_deref(), Some(LOG_FILTER));
        assert_eq!(settings.config(), Config::default());
    }

    /// The line that docs/settings.md has below a setting's heading.
    fn line_of(arg: &clap::Arg) -> String {
        let is_switch = (arg.get_num_args()).is_some_and(|values| values.min_values() == 0);
        let default = match default_in_help(arg) {
            Some(words) if words.contains(' ') => words,
            Some(value) => format!("`{value}`"),
            None if is_switch => "`false`".to_owned(),
            None => "none".to_owned(),
        };
        let name = arg.get_id().as_str();
        let range = Config::ranges().into_iter().find(|(of, _)| *of == name);
        let range = range.map_or(String::new(), |(_, range)| {
            format!(" Range: {} to {}.", range.start(), range.end())
        });
        let flag = arg.get_long().expect("a flag");
        let variable = arg.get_env().expect("a variable").display();
        format!("Default: {default}.{range} Flag: `--{flag}`. Variable: `{variable}`.")
    }

    #[test]
    fn the_page_of_settings_has_a_section_for_each_and_for_no_other() {
        let page = include_str!("../../docs/settings.md");
        let lines: Vec<&str> = page.lines().filter(|line| !line.is_empty()).collect();
        let is_section = |pair: &&[&str]| pair[0].starts_with("### ");
        let sections: Vec<(&str, &str)> =
            lines.windows(2).filter(is_section).map(|pair| (pair[0], pair[1])).collect();
        let command = Settings::augment_args(clap::Command::new("start"));
        let flags = command.get_arguments().map(|arg| (arg.get_id().to_string(), line_of(arg)));
        let secrets = Settings::secrets().into_iter().map(|(name, variable)| {
            (name.to_owned(), format!("Default: none. No flag. Variable: `{variable}`."))
        });
        let mut expected = BTreeSet::new();
        for (name, line) in flags.chain(secrets) {
            let heading = format!("### `{name}`");
            let of_setting = sections.iter().filter(|(told, _)| *told == heading);
            let told: Vec<&str> = of_setting.map(|(_, line)| *line).collect();
            assert_eq!(
                told,
                [line.as_str()],
                "docs/settings.md needs one section that begins:\n{heading}\n\n{line}\n"
            );
            expected.insert(heading);
        }
        for (heading, _) in sections {
            assert!(
                expected.contains(heading),
                "docs/settings.md has {heading:?}, which is no setting"
            );
        }
    }
}
