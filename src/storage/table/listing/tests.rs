//! Which sections a page has.

use std::sync::Arc;

use tempfile::TempDir;

use super::*;
use crate::{
    clock::BootClock,
    sequence::Table,
    storage::{AppliedTable, LogId, Store, StoreOptions},
};

const CHAT: NamespaceId = NamespaceId(2);
const BOOK: NamespaceId = NamespaceId(3);

fn name(name: &[u8]) -> SectionKey {
    SectionKey::Name(name.into())
}

/// A table with sections of three namespaces.
fn table(dir: &TempDir) -> AppliedTable {
    let store = Store::open(dir.path(), "test", 1, StoreOptions::new(Arc::new(BootClock)));
    let mut table = AppliedTable::open(&store.expect("a store"), 1).expect("a table");
    let mut change = table.change();
    let names = [b"a".as_slice(), b"ab", b"ab\xff", b"ab\xff\xff", b"ac", b"b"].map(name);
    let ids = [0, 7, 255, 256, u64::MAX].map(SectionKey::Id);
    let others = [(NamespaceId(1), name(b"ab")), (NamespaceId(4), SectionKey::Id(7))];
    let names = names.into_iter().map(|key| (CHAT, key));
    let ids = ids.into_iter().map(|key| (BOOK, key));
    for (namespace, key) in names.chain(ids).chain(others) {
        let record = SectionRecord { max_seq: 10, ..SectionRecord::default() };
        change.put_section(&SectionId { namespace, key }, record);
    }
    let mut meta = table.meta().clone();
    meta.last_applied = Some(LogId::new(1.into(), 1));
    table.write(change, meta).expect("written");
    table
}

fn page(table: &AppliedTable, asked: &PageAsked) -> (Vec<SectionKey>, bool) {
    let page = read(&table.view().generation(), asked).expect("read");
    (page.sections.into_iter().map(|(key, _)| key).collect(), page.more)
}

#[test]
fn names_are_found_by_prefix_and_pages_follow_one_another() {
    let dir = TempDir::new().expect("a directory");
    let table = table(&dir);
    let asked = |prefix: &[u8], after: Option<&[u8]>, limit| PageAsked {
        namespace: CHAT,
        prefix: prefix.into(),
        after: after.map(name),
        limit,
    };
    let names = |names: &[&[u8]], more| (names.iter().map(|one| name(one)).collect(), more);
    assert_eq!(page(&table, &asked(b"ab", None, 2)), names(&[b"ab", b"ab\xff"], true));
    assert_eq!(page(&table, &asked(b"ab", Some(b"ab\xff"), 2)), names(&[b"ab\xff\xff"], false));
    assert_eq!(page(&table, &asked(b"ab\xff", None, 9)), names(&[b"ab\xff", b"ab\xff\xff"], false));
    // It need not exist, and may lie before the prefix.
    assert_eq!(page(&table, &asked(b"", Some(b"abc"), 1)), names(&[b"ab\xff"], true));
    assert_eq!(page(&table, &asked(b"b", Some(b"a"), 9)), names(&[b"b"], false));
    assert!(!page(&table, &asked(b"", None, 6)).1);
    assert_eq!(page(&table, &asked(b"c", None, 9)), names(&[], false));
}

#[test]
fn ids_come_in_the_order_of_numbers() {
    let dir = TempDir::new().expect("a directory");
    let table = table(&dir);
    let asked = |after: Option<u64>, limit| PageAsked {
        namespace: BOOK,
        prefix: Box::default(),
        after: after.map(SectionKey::Id),
        limit,
    };
    let ids = |ids: &[u64], more| (ids.iter().map(|id| SectionKey::Id(*id)).collect(), more);
    assert_eq!(page(&table, &asked(None, 3)), ids(&[0, 7, 255], true));
    assert_eq!(page(&table, &asked(Some(255), 3)), ids(&[256, u64::MAX], false));
    assert_eq!(page(&table, &asked(Some(8), 1)), ids(&[255], true));
    assert_eq!(page(&table, &asked(Some(u64::MAX), 1)), ids(&[], false));
}
