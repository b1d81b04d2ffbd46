//! Grants, quotas and addresses together, and their changes.

use std::num::NonZeroU32;

use super::*;
use crate::sequence::caller_ids::{NO_NETWORK, network_of};

const NOW: u64 = 1_000;

fn grant(text: &str) -> Grant {
    let (verb, namespaces) = text.split_once(':').expect("a grant");
    let verb = Verb::ALL.into_iter().find(|known| known.to_string() == verb).expect("a verb");
    Grant { verb, namespaces: NamespacePattern::parse(namespaces).expect("a pattern") }
}

fn token(hash: u8, grants: &[&str], expires_ms: Option<u64>) -> AccessChange {
    let token = TokenRecord {
        name: "ci".to_owned(),
        expires_ms,
        made_by: ANONYMOUS.to_owned(),
        made_ms: u64::from(hash),
    };
    let grants = grants.iter().map(|text| grant(text)).collect();
    let record = PrincipalRecord { grants, token: Some(token), quotas: Vec::new() };
    AccessChange::AddToken { hash: TokenHash([hash; 32]), record, principals_max: 4 }
}

fn granting(key: PrincipalKey, grants: &[&str]) -> AccessChange {
    let grants = grants.iter().map(|text| grant(text)).collect();
    AccessChange::Grant { key, grants, principals_max: 4 }
}

fn change(access: &mut Principals, change: &AccessChange) -> Result<(), AccessRefused> {
    for (key, record) in change.records(access, true)? {
        access.put(key, record);
    }
    Ok(())
}

fn anybody() -> PrincipalKey {
    PrincipalKey::Anonymous(None)
}

fn shown(hash: u8) -> Credential {
    Credential::Token(TokenHash([hash; 32]))
}

#[test]
fn a_table_without_records_grants_anybody_everything_and_a_founding_with_a_token_only_that_one() {
    let open = Principals::default();
    assert!(open.is_open());
    assert_eq!((open.records().count(), open.iter().count()), (0, 1), "nothing was written");
    for verb in Verb::ALL {
        assert_eq!(open.check(&Credential::Nothing, 7, Wanted::OnAll(verb), || NOW), Ok(()));
    }
    let founding =
        AccessChange::Found { admin: TokenHash([1; 32]), grants: Grant::everything(), now_ms: NOW };
    assert_eq!(founding.records(&open, true), Ok(vec![]), "a cluster is founded once");
    let founded = founding.records(&open, false).expect("records");
    let founded =
        Principals::new(founded.into_iter().filter_map(|(key, record)| Some((key, record?))), 1);
    assert!(!founded.is_open());
    for wanted in [Wanted::Anything, Wanted::On(Verb::Next, "book"), Wanted::OnAll(Verb::Admin)] {
        let check = |shown: &Credential| founded.check(shown, 7, wanted, || NOW);
        assert_eq!(check(&Credential::Nothing), Err(Denied::NothingShown), "{wanted}");
        let stranger = Credential::Certificate("ratchet://main/client/a".into());
        assert_eq!(check(&stranger), Err(Denied::NotGranted), "{wanted}");
        assert_eq!(check(&shown(2)), Err(Denied::UnknownToken), "{wanted}");
        assert_eq!(check(&shown(1)), Ok(()), "{wanted}");
    }
}

#[test]
fn a_grant_holds_for_its_verb_and_the_namespaces_that_fit() {
    let mut access = Principals::default();
    change(&mut access, &granting(anybody(), &[])).unwrap();
    change(&mut access, &token(1, &["next:order*", "read:book"], None)).unwrap();
    let check = |wanted| access.check(&shown(1), 7, wanted, || NOW);
    for wanted in [
        Wanted::Anything,
        Wanted::On(Verb::Next, "order"),
        Wanted::On(Verb::Next, "orders"),
        Wanted::On(Verb::Read, "book"),
        Wanted::OnSome(Verb::Read),
    ] {
        assert_eq!(check(wanted), Ok(()), "{wanted}");
    }
    for wanted in [
        Wanted::On(Verb::Next, "orde"),
        Wanted::On(Verb::Next, "book"),
        Wanted::On(Verb::Raise, "order"),
        Wanted::On(Verb::Read, "books"),
        Wanted::OnAll(Verb::Next),
        Wanted::OnSome(Verb::Admin),
    ] {
        assert_eq!(check(wanted), Err(Denied::NotGranted), "{wanted}");
    }
}

#[test]
fn a_token_is_worth_nothing_from_its_end_on_and_what_is_granted_to_anonymous_does_not_save_it() {
    let mut access = Principals::default();
    change(&mut access, &token(1, &["next:*"], Some(NOW + 1))).unwrap();
    let at = |now| access.check(&shown(1), 7, Wanted::On(Verb::Next, "book"), || now);
    assert_eq!((at(NOW), at(NOW + 1)), (Ok(()), Err(Denied::Expired)));
    // Everybody may what anonymous may.
    assert_eq!(access.check(&shown(1), 7, Wanted::OnAll(Verb::Admin), || NOW), Ok(()));
}

#[test]
fn what_is_granted_to_addresses_holds_for_callers_there() {
    let mut access = Principals::default();
    change(&mut access, &granting(anybody(), &["read:*"])).unwrap();
    let range = AddressRange::parse("10.1.0.0/16").expect("a range");
    let there = PrincipalKey::Anonymous(Some(range));
    change(&mut access, &granting(there.clone(), &["next:book"])).unwrap();
    let check = |address: &str, wanted| {
        let network = network_of(address.parse().expect("an address"));
        access.check(&Credential::Nothing, network, wanted, || NOW)
    };
    let next = Wanted::On(Verb::Next, "book");
    assert_eq!(check("10.1.255.3", next), Ok(()));
    assert_eq!(check("10.2.0.0", next), Err(Denied::NothingShown));
    assert_eq!(check("10.2.0.0", Wanted::On(Verb::Read, "book")), Ok(()));
    change(&mut access, &granting(there.clone(), &[])).unwrap();
    assert_eq!(access.get(&there), None);
    // Of anonymous it is remembered that nothing is granted.
    change(&mut access, &granting(anybody(), &[])).unwrap();
    assert_eq!(access.get(&anybody()).map(|record| record.grants.len()), Some(0));
}

#[test]
fn everything_granted_to_a_range_is_granted_to_nobody_elsewhere_and_to_no_other_family() {
    let mut access = Principals::default();
    change(&mut access, &granting(anybody(), &[])).unwrap();
    let all: Vec<String> = Verb::ALL.map(|verb| format!("{verb}:*")).into();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    for (range, inside) in [("::/64", "::1"), ("::/1", "fd00::"), ("127.0.0.0/8", "127.0.0.1")] {
        let key = PrincipalKey::Anonymous(AddressRange::parse(range).ok());
        change(&mut access, &granting(key.clone(), &all)).unwrap();
        assert!(!access.is_open(), "{range}");
        let check = |network| {
            access.check(&Credential::Nothing, network, Wanted::OnAll(Verb::Admin), || NOW)
        };
        let at = |address: &str| check(network_of(address.parse().expect("an address")));
        assert_eq!(at(inside).is_ok(), range != "::/1", "{range}");
        assert_eq!(at("10.2.0.0"), Err(Denied::NothingShown), "{range}");
        assert_eq!(check(NO_NETWORK), Err(Denied::NothingShown), "{range}");
        change(&mut access, &granting(key, &[])).unwrap();
    }
}

#[test]
fn what_is_granted_to_strangers_is_all_but_what_private_addresses_have() {
    let mut access = Principals::default();
    let all = Verb::ALL.len();
    assert_eq!(access.granted_to_strangers().count(), all, "nothing was written");
    change(&mut access, &granting(anybody(), &[])).unwrap();
    let range = |text: &str| AddressRange::parse(text).expect(text);
    for (text, is_private) in [
        ("10.0.0.0/8", true),
        ("10.1.2.3", true),
        ("172.16.0.0/12", true),
        ("192.168.7.0/24", true),
        ("127.0.0.1", true),
        ("::/64", true),
        ("fd00:1::/32", true),
        ("0.0.0.0/1", false),
        ("128.0.0.0/1", false),
        ("8.0.0.0/6", false),
        ("172.0.0.0/8", false),
        ("203.0.113.7", false),
        ("::/1", false),
        ("::/63", false),
        ("8000::/1", false),
        ("2001:db8::/32", false),
    ] {
        let key = PrincipalKey::Anonymous(Some(range(text)));
        change(&mut access, &granting(key.clone(), &["next:book"])).unwrap();
        let granted: Vec<_> = access.granted_to_strangers().collect();
        let expected = vec![(Some(range(text)), grant("next:book"))];
        let granted: Vec<_> =
            granted.into_iter().map(|(range, grant)| (range, grant.clone())).collect();
        assert_eq!(granted, if is_private { vec![] } else { expected }, "{text}");
        assert_eq!(access.granted_to_private().count(), usize::from(is_private), "{text}");
        change(&mut access, &granting(key, &[])).unwrap();
    }
}

#[test]
fn a_grant_covers_another_one_if_it_allows_all_of_it() {
    let covers = |own: &str, other: &str| grant(own).covers(&grant(other));
    for (own, other) in
        [("next:*", "next:a"), ("next:*", "next:a*"), ("next:a*", "next:ab"), ("next:a", "next:a")]
    {
        assert!(covers(own, other) && (own == other || !covers(other, own)), "{own} {other}");
    }
    for (own, other) in [("next:*", "read:a"), ("next:a", "next:a*"), ("next:ab*", "next:a")] {
        assert!(!covers(own, other), "{own} {other}");
    }
}

#[test]
fn quotas_leave_grants_alone_and_what_anonymous_has_unwritten_is_what_the_proposer_says() {
    let anybody = PrincipalKey::Anonymous(None);
    let quota = Quota {
        namespaces: NamespacePattern::parse("*").expect("a pattern"),
        calls_per_second: NonZeroU32::new(1),
        numbers_per_second: None,
        burnt_per_day: None,
    };
    let limiting = |key: &PrincipalKey, quotas: &[Quota]| AccessChange::SetQuotas {
        keys: vec![key.clone()],
        quotas: quotas.to_vec(),
        // Another release may know other verbs.
        everything: vec![grant("next:*")],
    };
    let mut access = Principals::default();
    change(&mut access, &limiting(&anybody, std::slice::from_ref(&quota))).expect("limited");
    let written = access.get(&anybody).expect("written");
    assert_eq!((&written.grants[..], &written.quotas[..]), (&[grant("next:*")][..], &[quota][..]));
    assert!(access.has_quotas());
    change(&mut access, &granting(anybody.clone(), &["read:*"])).expect("granted");
    assert!(access.has_quotas(), "a grant leaves quotas alone");
    change(&mut access, &limiting(&anybody, &[])).expect("not limited");
    assert_eq!(access.get(&anybody).expect("written").grants, [grant("read:*")]);
    assert!(!access.has_quotas());
    let nobody = PrincipalKey::Token(TokenHash([9; 32]));
    assert_eq!(change(&mut access, &limiting(&nobody, &[])), Err(AccessRefused::NoPrincipal));
}

#[test]
fn a_token_is_added_once_and_there_is_an_end_to_them() {
    let mut access = Principals::default();
    change(&mut access, &token(1, &["next:*"], None)).unwrap();
    let again = AccessChange::records(&token(1, &["next:*"], None), &access, true);
    assert_eq!(again, Ok(vec![]));
    let exists = Err(AccessRefused::Exists("010101010101".to_owned()));
    assert_eq!(change(&mut access, &token(1, &["read:*"], None)), exists);
    assert_eq!(change(&mut access, &token(1, &["next:*"], Some(5))), exists);
    for hash in 2..=4 {
        change(&mut access, &token(hash, &["next:*"], None)).unwrap();
    }
    let too_many = Err(AccessRefused::TooMany(4));
    assert_eq!(change(&mut access, &token(5, &["next:*"], None)), too_many);
    assert_eq!(change(&mut access, &granting(anybody(), &[])), too_many);
    assert_eq!(access.tokens_named("ci").count(), 4);
    let remove = AccessChange::RemoveToken(TokenHash([2; 32]));
    change(&mut access, &remove).unwrap();
    assert_eq!(access.tokens_named("ci").count(), 3);
    assert!(matches!(change(&mut access, &remove), Err(AccessRefused::NotFound(_))));
}

#[test]
fn ranges_and_patterns_and_names_that_are_none_are_refused() {
    for (text, shown) in [
        ("10.1.2.3", "10.1.2.3/32"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("fd00:1::/32", "fd00:1::/32"),
        ("fd00:1:2:3::/64", "fd00:1:2:3::/64"),
        ("::/64", "::/64"),
    ] {
        let range = AddressRange::parse(text).expect(text);
        assert_eq!(range.to_string(), shown);
    }
    for text in [
        "",
        "10.1.2.3/33",
        "0.0.0.0/0",
        "::/0",
        "10.1.0.0/8",
        "10.1/16",
        "fd00::1/64",
        "fd00::/65",
        "fd00::",
        "a/8",
    ] {
        AddressRange::parse(text).expect_err(text);
    }
    for text in ["*", "order", "order*"] {
        assert_eq!(NamespacePattern::parse(text).expect(text).as_str(), text);
    }
    for text in ["", "**", "or*der", "a b", "a:b"] {
        NamespacePattern::parse(text).expect_err(text);
    }
    for name in ["ci", "a.b_c-9"] {
        check_token_name(name).expect(name);
    }
    for name in ["", ANONYMOUS, LOCAL, "a b", "ratchet://x", &"n".repeat(65)] {
        check_token_name(name).expect_err(name);
    }
    check_uri("ratchet://main/client/ci").expect("a URI");
    for uri in ["ci", "ratchet://a b", &format!("a://{}", "b".repeat(300))] {
        check_uri(uri).expect_err(uri);
    }
}
