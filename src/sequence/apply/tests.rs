//! What commands do to a table.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
};

use super::*;
use crate::sequence::{Bequest, Chunk, MemoryDigest, NUMBER_MAX, Raise, SectionKey};

#[derive(Default)]
struct Memory {
    ledger: Ledger,
    sections: HashMap<SectionId, SectionRecord>,
    namespaces: BTreeMap<NamespaceId, Namespace>,
}

impl Table for Memory {
    type Error = Infallible;
    fn ledger(&self) -> Result<Ledger, Infallible> {
        Ok(self.ledger)
    }
    fn put_ledger(&mut self, ledger: Ledger) {
        self.ledger = ledger;
    }
    fn section(&self, id: &SectionId, lift: u64) -> Result<SectionRecord, Infallible> {
        let record = self.sections.get(id).copied().unwrap_or_default();
        // Nothing may depend on the floor of an older record.
        let floor = match record.lift < lift {
            true => record.max_seq,
            false => record.floor,
        };
        Ok(SectionRecord { floor, ..record })
    }
    fn put_section(&mut self, id: &SectionId, record: SectionRecord) {
        self.sections.insert(id.clone(), record);
    }
    fn namespace(&self, id: NamespaceId) -> Option<&Namespace> {
        self.namespaces.get(&id)
    }
    fn namespace_named(&self, name: &str) -> Option<&Namespace> {
        self.namespaces.values().find(|n| n.config.name == name)
    }
    fn namespace_count(&self) -> usize {
        self.namespaces.len()
    }
    fn next_namespace_id(&self) -> NamespaceId {
        NamespaceId(self.namespaces.len() as u32 + 1)
    }
    fn put_namespace(&mut self, namespace: Namespace) {
        self.namespaces.insert(namespace.id, namespace);
    }
}

fn run(table: &mut Memory, term: u64, command: Command) -> Outcome {
    let Ok(outcome) = apply(table, term, &command);
    outcome
}

fn bump(id: u64, numbers: u64) -> Bump {
    Bump {
        section: section(id),
        raise: Raise {
            numbers,
            unused_max: numbers,
            step: numbers,
            up_to: 0,
        },
    }
}

fn section(id: u64) -> SectionId {
    SectionId {
        namespace: NamespaceId(1),
        key: SectionKey::Id(id),
    }
}

/// A table with the namespace "book", in which term 1 has lifted.
fn with_book() -> Memory {
    let mut table = Memory::default();
    let create = Command::create_namespace(NamespaceConfig::new("book"));
    run(&mut table, 1, create);
    assert_eq!(run(&mut table, 1, Command::Lift), Outcome::Holds(1));
    table
}

#[test]
fn an_entry_that_bumps_a_section_twice_gives_it_two_adjacent_chunks() {
    let mut table = with_book();
    let outcome = run(
        &mut table,
        1,
        Command::Bump(vec![bump(7, 10), bump(8, 5), bump(7, 10)]),
    );
    assert_eq!(
        outcome,
        Outcome::Bumped(vec![
            Bumped::Chunk(Chunk {
                old: 0,
                new: 10,
                left: 0
            }),
            Bumped::Chunk(Chunk {
                old: 0,
                new: 5,
                left: 0
            }),
            Bumped::Chunk(Chunk {
                old: 10,
                new: 20,
                left: 0
            }),
        ])
    );
}

#[test]
fn a_refused_command_has_an_outcome_and_changes_nothing() {
    let mut table = Memory::default();
    run(&mut table, 1, Command::Lift);
    assert_eq!(
        run(&mut table, 1, Command::Bump(vec![bump(7, 10)])),
        Outcome::Bumped(vec![Bumped::NoNamespace])
    );
    run(
        &mut table,
        1,
        Command::create_namespace(NamespaceConfig::new("book")),
    );
    assert_eq!(
        run(
            &mut table,
            1,
            Command::create_namespace(NamespaceConfig::new("book"))
        ),
        Outcome::Namespace(Err(NamespaceRefused::Exists("book".into())))
    );
    let update = |name: &str, step| Command::UpdateNamespace {
        name: name.into(),
        step,
        step_min: None,
        step_max: None,
        max: None,
    };
    assert!(matches!(
        run(&mut table, 1, update("film", None)),
        Outcome::Namespace(Err(NamespaceRefused::NotFound(_)))
    ));
    assert!(matches!(
        run(&mut table, 1, update("book", Some(0))),
        Outcome::Namespace(Err(NamespaceRefused::Invalid(_)))
    ));
    assert_eq!(table.namespace_named("book").unwrap().config.step, 10_000);
}

#[test]
fn the_entry_that_creates_a_namespace_brings_the_limit_on_their_number() {
    let mut table = Memory::default();
    let create = |name: &str, namespaces_max| Command::CreateNamespace {
        config: NamespaceConfig::new(name),
        namespaces_max,
    };
    let is_created = |outcome| matches!(outcome, Outcome::Namespace(Ok(_)));
    assert!(is_created(run(&mut table, 1, create("a", 2))));
    assert!(is_created(run(&mut table, 1, create("b", 2))));
    let refused = Outcome::Namespace(Err(NamespaceRefused::TooMany(2)));
    assert_eq!(run(&mut table, 1, create("c", 2)), refused);
    let exists = Outcome::Namespace(Err(NamespaceRefused::Exists("a".into())));
    assert_eq!(run(&mut table, 1, create("a", 2)), exists);
    assert!(is_created(run(&mut table, 1, create("c", 3))));
}

fn trim(id: u64, used: u64) -> Command {
    Command::Trim(vec![Trim {
        section: section(id),
        used,
    }])
}

#[test]
fn a_term_that_has_not_lifted_or_is_over_writes_nothing() {
    let mut table = with_book();
    run(&mut table, 1, Command::Bump(vec![bump(7, 10)]));
    let settle = Command::Settle(vec![section(7)]);
    let before = table.sections.clone();
    let not_holder = |term| Outcome::Refused(LedgerRefused::NotHolder { term, holder: 1 });
    for command in [Command::Bump(vec![bump(7, 10)]), trim(7, 3), settle.clone()] {
        assert_eq!(run(&mut table, 2, command), not_holder(2));
    }
    assert_eq!(run(&mut table, 2, Command::Lift), Outcome::Holds(2));
    let over = Outcome::Refused(LedgerRefused::NotHolder { term: 1, holder: 2 });
    for command in [Command::Bump(vec![bump(7, 10)]), trim(7, 3), settle.clone()] {
        assert_eq!(run(&mut table, 1, command), over);
    }
    assert_eq!(table.sections, before);
    assert_eq!(run(&mut table, 2, settle), Outcome::Settled(1));
    assert_eq!(table.sections[&section(7)].max_seq, 20);
    assert_eq!(run(&mut table, 2, trim(7, 13)), Outcome::Trimmed(1));
    assert_eq!(table.sections[&section(7)].max_seq, 13);
}

#[test]
fn what_a_term_left_is_written_by_the_heir_alone() {
    let mut table = with_book();
    run(&mut table, 1, Command::Bump(vec![bump(7, 10)]));
    let digest = MemoryDigest {
        parts: 1,
        checksum: 2,
    };
    let bequest = Bequest::Memory { heir: 2, digest };
    let bequeath = Command::Bequeath(bequest);
    assert_eq!(run(&mut table, 1, bequeath), Outcome::Bequeathed);
    let left = Outcome::Refused(LedgerRefused::Left(1));
    assert_eq!(run(&mut table, 1, Command::Bump(vec![bump(7, 10)])), left);
    let inherit = |heir| Command::Inherit { heir, digest };
    let refused = Outcome::Refused(LedgerRefused::NotHeir(3));
    assert_eq!(run(&mut table, 2, inherit(3)), refused);
    assert_eq!(run(&mut table, 2, inherit(2)), Outcome::Holds(1));
    let bumped = run(&mut table, 2, Command::Bump(vec![bump(7, 10)]));
    let chunk = Chunk {
        old: 10,
        new: 20,
        left: 0,
    };
    assert_eq!(bumped, Outcome::Bumped(vec![Bumped::Chunk(chunk)]));
}

#[test]
fn a_namespace_remembers_the_greatest_max_that_it_had() {
    let mut table = with_book();
    for (max, max_ever) in [(50, NUMBER_MAX), (90, NUMBER_MAX)] {
        let update = Command::UpdateNamespace {
            name: "book".into(),
            step: None,
            step_min: None,
            step_max: None,
            max: Some(max),
        };
        run(&mut table, 1, update);
        let book = table.namespace_named("book").unwrap();
        assert_eq!((book.config.max, book.max_ever), (max, max_ever));
    }
}
