//! Margins, and those that do not fit.

use super::*;

/// The entry may never have been committed, and the other nodes went on with the greater step.
#[test]
fn an_unapplied_smaller_step_does_not_make_the_margin_smaller() {
    let smaller = Command::UpdateNamespace {
        name: "book".to_owned(),
        change: NamespaceChange { step: Some(1), ..NamespaceChange::default() },
    };
    let dir = directory(1, vec![smaller]);
    let done = recover(dir.path(), SET, &steps(50), false).unwrap();
    assert_eq!(done.namespaces[0].raised_by, 500);
}

#[test]
fn a_margin_that_does_not_fit_a_namespace_is_refused_with_one_that_does() {
    let dir = directory(1, Vec::new());
    let refused = recover(dir.path(), SET, &steps(10_001), false).unwrap_err();
    assert!(refused.to_string().contains("--margin book=9999"), "{refused}");
    let done = recover(dir.path(), SET, &steps(9_999), false).unwrap();
    assert_eq!(done.namespaces[0].exhausted, 1);
    let store = open(dir.path()).unwrap();
    assert_eq!(ceiling(&store, 0), 100_170, "the ceiling is raised beyond what is left under max");
}

/// The greatest margin that fits would leave each key one order number, and `max` cannot be raised.
#[test]
fn a_margin_that_does_not_fit_a_format_with_a_date_is_refused_with_what_it_means() {
    let create = Command::create_namespace(NamespaceConfig {
        format: Some("yuewen-chapter".to_owned()),
        step: 1,
        max: 9_999,
        ..NamespaceConfig::new("chapters")
    });
    let dir = directory(1, vec![create]);
    let refused = recover(dir.path(), SET, &steps(9_999), false).unwrap_err();
    let text = refused.to_string();
    for part in [
        "--margin chapters=STEPS",
        "9999 order numbers",
        "given any one key after the end of this copy",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("9998"), "{text}");
    let margin = Margin {
        default_steps: 9_999,
        steps_by_namespace: BTreeMap::from([("chapters".to_owned(), 20)]),
    };
    let done = recover(dir.path(), SET, &margin, false).unwrap();
    assert_eq!((done.namespaces[2].start, done.namespaces[2].raised_by), (21, 20));
}

/// Nobody can tell whether its numbers hold a time.
#[test]
fn a_namespace_with_a_format_that_this_release_does_not_know_is_refused() {
    let create = Command::create_namespace(NamespaceConfig {
        format: Some("bits moon:41 sequence:12".to_owned()),
        ..NamespaceConfig::new("later")
    });
    let dir = directory(1, vec![create]);
    let refused = recover(dir.path(), SET, &steps(50), false).unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("format of namespace \"later\""), "{text}");
    assert!(open(dir.path()).is_ok(), "nothing was changed");
}
