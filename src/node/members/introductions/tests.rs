//! Introductions of other nodes.

use super::*;

#[test]
fn a_peer_of_another_release_is_named_once_and_again_when_its_release_changes() {
    let introductions = Introductions::default();
    let told = |version: &str, resp_address: &str| {
        let build = Build { version: version.to_owned(), commit: "c0ffee".to_owned() };
        Introduction::told(Some(build), resp_address, "")
    };
    let news = introductions.note(2, told("9.0.0", "")).expect("news");
    assert!(news.contains("node 2 runs ratchet 9.0.0 (c0ffee)"), "{news}");
    assert!(news.contains(version::LONG), "{news}");
    assert_eq!(introductions.note(2, told("9.0.0", "a:1")), None);
    assert_eq!(introductions.of(2).expect("known").resp_address, "a:1");
    assert!(introductions.note(3, told("9.0.0", "")).is_some(), "another peer");
    assert!(introductions.note(2, told("9.0.1", "")).is_some());
    let same = Introduction::told(Some(this_build()), "", "");
    assert_eq!(introductions.note(2, same.clone()), None, "the same as here");
    assert_eq!(introductions.of(2), Some(same));
    assert!(introductions.note(2, told("9.0.0", "")).is_some(), "changed again");
    let silent = introductions.note(4, Introduction::told(None, "", ""));
    let silent = silent.expect("news");
    assert!(silent.contains("does not say"), "{silent}");
}

#[test]
fn what_a_stranger_says_of_a_member_is_not_believed_and_the_member_is_asked_again() {
    let introductions = Introductions::default();
    let told = |address| Introduction::told(Some(this_build()), address, address);
    introductions.note(2, told("a:1"));
    introductions.note_request(2, &told("a:1"));
    assert_eq!(introductions.of(2), Some(told("a:1")));
    assert!(!introductions.is_to_be_asked(2));
    introductions.note_request(2, &told("evil:1"));
    assert_eq!(
        introductions.of(2),
        Some(told("a:1")),
        "what it told itself counts until it is asked"
    );
    assert!(introductions.is_to_be_asked(2) && introductions.is_to_be_asked(3));
    introductions.note(2, told("b:1"));
    assert_eq!(introductions.of(2), Some(told("b:1")));
    assert!(!introductions.is_to_be_asked(2));
}

#[test]
fn of_what_a_peer_tells_printable_characters_are_kept() {
    let told = Introduction::told(None, &format!("a\r\nb {}", "x".repeat(300)), "");
    assert_eq!(told.resp_address, format!("ab{}", "x".repeat(254)));
}

#[test]
fn all_clients_reach_a_node_at_the_same_host() {
    let at = |address: &str| address.parse().expect("an address");
    let interface = |client_address, clients, interface| {
        interface_address(client_address, at(clients), at(interface))
    };
    let everywhere = interface("one.example:7600", "0.0.0.0:7600", "0.0.0.0:7604");
    assert_eq!(everywhere, "one.example:7604");
    assert_eq!(interface("[::1]:7600", "[::1]:7600", "[::1]:7604"), "[::1]:7604");
    let elsewhere = interface("10.0.0.1:7600", "10.0.0.1:7600", "10.0.0.2:7604");
    assert_eq!(elsewhere, "10.0.0.2:7604");
    let nowhere = interface("10.0.0.1:7600", "10.0.0.1:7600", "127.0.0.1:7604");
    assert_eq!(nowhere, "", "others cannot reach it");
}
