//! The limits of the node that pages, comments, tests and other packages repeat: each tells the figure that the node declares.

use std::fs;

use crate::files::{assert_none, root};

/// A limit, and who repeats it.
struct Limit {
    /// The file that declares it.
    path: &'static str,
    /// Its declaration, up to the figure.
    declared: &'static str,
    /// The files that repeat it, and their words. `{}` stands for the figure.
    copies: &'static [(&'static str, &'static str)],
}

const LIMITS: [Limit; 6] = [
    Limit {
        path: "src/node/requests/keys.rs",
        declared: "pub const REQUEST_KEYS_MAX: usize = ",
        copies: &[
            ("proto/ratchet/v1/sequencer.proto", "Raise for up to {} keys of one namespace"),
            ("proto/ratchet/v1/sequencer.proto", "all ids of up to {} sections of one namespace"),
            ("proto/ratchet/v1/sequencer.proto", "Current for up to {} keys of one namespace"),
            ("proto/ratchet/v1/sequencer.proto", "Up to {} keys of one namespace"),
            ("client/src/floors.rs", "Raises the floors of up to {} keys of one kind"),
            ("client/src/floors.rs", "Raises the floors of up to {} sections"),
            ("client/src/floors.rs", "handed out for up to {} keys of one kind"),
            ("bench/src/options.rs", "range(1..={}))] pub batch: u32"),
            ("docs/client.md", "the same for up to {} keys of one kind"),
            ("docs/client.md", "the same for up to {} keys, or sections"),
            ("docs/grpc.md", "takes numbers of up to {} keys of one namespace"),
            ("docs/grpc.md", "`RaiseSections`, `CurrentMany`) | {} |"),
            ("docs/settings.md", "too few for one message of {} new keys"),
        ],
    },
    Limit {
        path: "src/server/http/answers.rs",
        declared: "const KEYS_MAX: usize = ",
        copies: &[
            ("proto/ratchet/v1/sequencer.proto", "is one message, of at most {} keys"),
            ("proto/ratchet/v1/sequencer.proto", "keys of one namespace, over HTTP {}. All of the"),
            ("proto/ratchet/v1/sequencer.proto", "sections of one namespace, over HTTP {}, asked"),
            ("proto/ratchet/v1/sequencer.proto", "over HTTP {}. rpc CurrentMany"),
            ("proto/ratchet/v1/sequencer.proto", "over HTTP {}; a key may come several times"),
            ("docs/http.md", "takes numbers of up to {} keys"),
            ("docs/http.md", "raises up to {} keys"),
            ("docs/http.md", "the `last` numbers of up to {} keys"),
        ],
    },
    Limit {
        path: "src/allocator/section/refill.rs",
        declared: "const CHUNK_LASTS_MIN: Duration = Duration::from_millis(",
        copies: &[
            ("src/allocator/section/refill.rs", "less than {} ms step x 2"),
            ("docs/concepts.md", "were used up in less than {} ms"),
        ],
    },
    Limit {
        path: "src/allocator/section/refill.rs",
        declared: "const CHUNK_LASTS_MAX: Duration = Duration::from_secs(",
        copies: &[
            ("src/allocator/section/refill.rs", "more than {} s step / 2"),
            ("docs/concepts.md", "lasted for more than {} s"),
        ],
    },
    Limit {
        path: "src/allocator/bumper.rs",
        declared: "pub const ENTRY_SECTIONS_MAX: usize = ",
        copies: &[
            ("tests/bumps.rs", "const ENTRY_KEYS: u64 = {};"),
            ("docs/protocol.md", "are logged in entries of at most {}"),
        ],
    },
    Limit {
        path: "src/server/otlp.rs",
        declared: "const EXPORT_MAX: Duration = Duration::from_secs(",
        copies: &[("tests/traces.rs", "const EXPORT_MAX: Duration = Duration::from_secs({});")],
    },
];

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The figure that stands in a source behind `declared`.
fn figure(source: &str, declared: &str) -> String {
    let (_, rest) = source.split_once(declared).expect("the limit is declared");
    rest.chars().take_while(|c| c.is_ascii_digit() || *c == '_').collect()
}

/// Whether a text has these words, with the figure as sources or as pages write it. Its lines may break anywhere.
fn tells(text: &str, words: &str, figure: &str) -> bool {
    let text: Vec<&str> =
        text.split_whitespace().filter(|word| !["//", "///", "//!"].contains(word)).collect();
    let text = text.join(" ");
    let figures = [figure.to_owned(), figure.replace('_', " ")];
    figures.iter().any(|figure| text.contains(&words.replace("{}", figure)))
}

#[test]
fn every_copy_of_a_limit_has_the_figure_that_the_node_declares() {
    for Limit { path, declared, copies } in LIMITS {
        let figure = figure(&read(path), declared);
        assert!(!figure.is_empty(), "{path} declares no figure: {declared}");
        let wrong = copies.iter().filter(|(path, words)| !tells(&read(path), words, &figure));
        let wrong: Vec<String> = wrong
            .map(|(path, words)| format!("{path}: {}", words.replace("{}", &figure)))
            .collect();
        assert_none(&format!("{declared}{figure} is not told by"), &wrong);
    }
}

#[test]
fn a_copy_of_a_limit_that_differs_is_found() {
    let declared =
        figure("/// Most.\nconst KEYS_MAX: usize = 65_536;\n", "const KEYS_MAX: usize = ");
    assert_eq!(declared, "65_536");
    assert!(tells("/// Of up to 65 536\n/// keys.", "up to {} keys", &declared));
    assert!(tells("range(1..=65_536)", "range(1..={})", &declared));
    assert!(!tells("Of up to 65 535 keys.", "up to {} keys", &declared));
}
