//! Ids that keep all promises, and for each promise some that break it.

use super::*;
use crate::{cluster::Fence, ids::namespace::ALL, nemesis::Nemesis};

/// 2026-01-01T00:00:00Z.
const START_MS: u64 = 1_767_225_600_000;
const MS_NS: u64 = 1_000_000;
const EXACT: Distance = Distance { always_ms: 1_000, per_second_ms: 0 };

fn place(name: &str) -> usize {
    ALL.iter().position(|known| known.name == name).unwrap()
}

/// An id of the time `ms` after the start.
struct Made {
    ms: u64,
    worker: u64,
    sequence: u64,
    parameters: Vec<u64>,
    key: Option<u64>,
}

impl Made {
    fn at(ms: u64, sequence: u64) -> Made {
        Made { ms, worker: 1, sequence, parameters: Vec::new(), key: None }
    }

    fn of_worker(self, worker: u64) -> Made {
        Made { worker, ..self }
    }

    fn with(self, parameters: &[u64]) -> Made {
        let parameters = parameters.to_vec();
        Made { parameters, ..self }
    }

    fn of_key(self, key: u64) -> Made {
        Made { key: Some(key), ..self }
    }

    fn id(&self, namespace: &IdNamespace) -> u128 {
        let format = Format::parse(namespace.format).unwrap();
        let names = namespace.parameters.iter().map(|(name, _)| *name);
        let parameters: Vec<_> = names.zip(self.parameters.iter().copied()).collect();
        let in_id = self.key.filter(|_| format.source() == Source::Key);
        let fixed = format.fixed(&parameters, in_id).unwrap();
        let parts = ratchet_ids::Parts {
            time_ms: START_MS + self.ms,
            worker: self.worker.min(format.workers_max()),
            sequence: self.sequence,
            random: 0,
        };
        format.encode(&parts, fixed).unwrap()
    }
}

/// The ids that node 1 was asked for at `from_ms`, and answered at `to_ms`.
fn taken(name: &str, (from_ms, to_ms): (u64, u64), made: &[Made]) -> TakenIds {
    let namespace = place(name);
    let ids = made.iter().map(|made| Said::Number(made.id(&ALL[namespace])));
    TakenIds {
        namespace,
        key: made[0].key,
        parameters: made[0].parameters.clone(),
        maker: Maker::Node(1),
        process: None,
        invoked_ns: from_ms * MS_NS,
        returned_ns: to_ms * MS_NS,
        asked: made.len(),
        ids: ids.collect(),
    }
}

fn judge(all_taken: &[TakenIds]) -> Vec<String> {
    let mut checker = Checker::new(&ALL, START_MS, EXACT).unwrap();
    all_taken.iter().for_each(|taken| checker.add(taken));
    checker.violations()
}

/// The history must break this rule alone, once.
fn assert_breaks(rule: Rule, all_taken: &[TakenIds]) {
    let mut checker = Checker::new(&ALL, START_MS, EXACT).unwrap();
    all_taken.iter().for_each(|taken| checker.add(taken));
    assert_eq!(checker.broken(), BTreeMap::from([(rule, 1)]), "{:?}", checker.violations());
}

#[test]
fn ids_that_keep_every_promise_pass() {
    let other = |mut taken: TakenIds| {
        taken.maker = Maker::Application(7);
        taken
    };
    let history = [
        taken("ids-snowflake", (0, 5), &[Made::at(2, 0), Made::at(2, 1)]),
        taken("ids-snowflake", (6, 9), &[Made::at(6, 0)]),
        // Another maker's ids may lie below: no order was promised.
        other(taken("ids-snowflake", (10, 12), &[Made::at(3, 0).of_worker(2)])),
        // Ids of a worker id that the node leased anew may do so, too.
        taken("ids-snowflake", (13, 14), &[Made::at(4, 0).of_worker(3)]),
        // Ids with other parameters may do so as well.
        taken("ids-route", (0, 1), &[Made::at(0, 0).with(&[1, 0])]),
        taken("ids-route", (2, 3), &[Made::at(0, 1).with(&[0, 0])]),
        taken("ids-chapter", (0, 1), &[Made::at(0, 100).with(&[0, 0]).of_key(1)]),
        taken("ids-chapter", (0, 1), &[Made::at(0, 100).with(&[0, 0]).of_key(2)]),
        taken("ids-chapter", (2, 3), &[Made::at(0, 200).with(&[1, 1]).of_key(2)]),
    ];
    assert_eq!(judge(&history), Vec::<String>::new());
}

#[test]
fn where_the_counter_runs_on_only_the_time_must_not_go_back() {
    let at = |ms, sequence| Made::at(ms, sequence).with(&[1, 0]);
    let wraps = taken("ids-route", (1_000, 1_005), &[at(1_000, 9_999), at(1_000, 0)]);
    let later = taken("ids-route", (1_006, 1_007), &[at(1_000, 1)]);
    assert_eq!(judge(&[wraps.clone(), later.clone()]), Vec::<String>::new());
    assert_breaks(Rule::Unique, &[wraps.clone(), later.clone(), later]);
    assert_breaks(Rule::Order, &[taken("ids-route", (1_000, 1_005), &[at(1_000, 1), at(0, 2)])]);
    let back = taken("ids-route", (1_006, 1_007), &[at(0, 3)]);
    let why = judge(&[wraps, back]);
    assert!(why.len() == 1 && why[0].contains("TimeOfMaker(Node(1), 1, [1, 0])"), "{why:?}");
}

#[test]
fn an_id_that_two_makers_made_is_refused() {
    let first = taken("ids-uuid7", (0, 5), &[Made::at(2, 9)]);
    let mut second = first.clone();
    second.maker = Maker::Application(3);
    assert_breaks(Rule::Unique, &[first, second]);
}

#[test]
fn an_id_that_comes_twice_in_one_answer_is_refused() {
    let twice = taken("ids-snowflake", (0, 5), &[Made::at(2, 9), Made::at(2, 9)]);
    let mut checker = Checker::new(&ALL, START_MS, EXACT).unwrap();
    checker.add(&twice);
    let both = BTreeMap::from([(Rule::Unique, 1), (Rule::Order, 1)]);
    assert_eq!(checker.broken(), both);
}

#[test]
fn a_chapter_id_that_one_key_has_twice_is_refused() {
    let once = taken("ids-chapter", (0, 5), &[Made::at(0, 100).with(&[0, 0]).of_key(4)]);
    assert_breaks(Rule::Unique, &[once.clone(), once]);
}

#[test]
fn an_answer_that_does_not_rise_is_refused() {
    let falling = taken("ids-own", (0, 5), &[Made::at(2, 1).with(&[0]), Made::at(2, 0).with(&[0])]);
    assert_breaks(Rule::Order, &[falling]);
}

#[test]
fn a_makers_later_id_below_an_earlier_one_is_refused() {
    let early = taken("ids-snowflake", (0, 5), &[Made::at(4, 0)]);
    let late = taken("ids-snowflake", (6, 9), &[Made::at(3, 0)]);
    let why = judge(&[late, early]);
    assert_eq!(why.len(), 1, "{why:?}");
    assert!(why[0].starts_with("ids-snowflake, OfMaker(Node(1), 1, [])"), "{why:?}");
}

#[test]
fn a_keys_later_id_below_an_earlier_one_is_refused_whoever_was_asked() {
    let made = |ms| Made::at(ms, 0).with(&[1]).of_key(2);
    let early = taken("ids-rongcloud", (0, 5), &[made(4)]);
    let mut late = taken("ids-rongcloud", (6, 9), &[made(3)]);
    late.maker = Maker::Node(2);
    assert_eq!(judge(&[early.clone(), late.clone()]).len(), 1);
    // Of another key it is in order.
    late = taken("ids-rongcloud", (6, 9), &[Made::at(3, 0).with(&[1]).of_key(3)]);
    assert_eq!(judge(&[early, late]), Vec::<String>::new());
}

#[test]
fn a_date_that_goes_back_is_refused_and_so_is_an_order_number() {
    let day_ms = 86_400_000;
    let at = |ms, sequence| Made::at(ms, sequence).with(&[0, 0]).of_key(1);
    let far = (day_ms, day_ms + 1);
    let first = taken("ids-chapter", far, &[at(day_ms, 200)]);
    let mut second = taken("ids-chapter", far, &[at(0, 300)]);
    (second.invoked_ns, second.returned_ns) = (first.returned_ns + 1, first.returned_ns + 2);
    let why = judge(&[first.clone(), second]);
    assert!(why.iter().any(|why| why.contains("DateOfKey(1)")), "{why:?}");
    let mut third = taken("ids-chapter", far, &[at(day_ms, 100)]);
    (third.invoked_ns, third.returned_ns) = (first.returned_ns + 1, first.returned_ns + 2);
    let why = judge(&[first, third]);
    assert!(why.len() == 1 && why[0].contains(", OfKey(1)"), "{why:?}");
}

#[test]
fn a_field_that_is_not_what_was_asked_for_is_refused() {
    let mut other_type = taken("ids-route", (0, 5), &[Made::at(2, 0).with(&[1, 0])]);
    other_type.parameters = vec![0, 0];
    assert_breaks(Rule::Fields, &[other_type]);
    let mut other_key = taken("ids-strict", (0, 5), &[Made::at(2, 0).with(&[1, 0]).of_key(2)]);
    other_key.key = Some(1);
    assert_breaks(Rule::Fields, &[other_key]);
    let mut wrong_constant = taken("ids-own", (0, 5), &[Made::at(2, 0).with(&[0])]);
    let Said::Number(id) = wrong_constant.ids[0] else { unreachable!() };
    wrong_constant.ids = vec![Said::Number(id ^ (1 << 57))];
    assert_breaks(Rule::Fields, &[wrong_constant]);
}

#[test]
fn a_text_that_its_format_does_not_write_is_refused() {
    let mut text = taken("ids-uuid7", (0, 5), &[Made::at(2, 0)]);
    let Said::Number(id) = text.ids[0] else { unreachable!() };
    let format = Format::parse("uuid7").unwrap();
    let printed = format.print(id).to_string();
    text.ids = vec![Said::Text(printed.clone())];
    assert_eq!(judge(std::slice::from_ref(&text)), Vec::<String>::new());
    // It can be read, but the format prints another text.
    let capitals = printed.to_uppercase();
    assert!(format.decode(&capitals).is_ok());
    // It cannot be read.
    let short = printed[1..].to_owned();
    for wrong in [capitals, short] {
        text.ids = vec![Said::Text(wrong)];
        assert_breaks(Rule::Fields, std::slice::from_ref(&text));
    }
}

#[test]
fn an_answer_with_too_few_ids_is_refused() {
    let mut short = taken("ids-snowflake", (0, 5), &[Made::at(2, 0)]);
    short.asked = 2;
    assert_breaks(Rule::Fields, &[short]);
}

#[test]
fn a_time_beyond_the_stated_distance_is_refused_on_both_sides() {
    let of_ms = |ms| taken("ids-snowflake", (5_000, 5_010), &[Made::at(ms, 0)]);
    for in_time in [4_000, 5_005, 6_010] {
        assert_eq!(judge(&[of_ms(in_time)]), Vec::<String>::new());
    }
    for too_far in [3_999, 6_012] {
        assert_breaks(Rule::Time, &[of_ms(too_far)]);
    }
    // A second has a thousand milliseconds: the last of them counts for an id that is early.
    let early = taken("ids-published", (5_999, 6_000), &[Made::at(4_000, 0).with(&[0])]);
    assert_eq!(judge(&[early]), Vec::<String>::new());
}

#[test]
fn what_one_process_of_a_node_makes_rises_across_its_worker_ids_unless_clocks_are_touched() {
    let made = |worker, (from_ms, to_ms), process| TakenIds {
        process,
        ..taken("ids-snowflake", (from_ms, to_ms), &[Made::at(4, 0).of_worker(worker)])
    };
    let wrong = |nemesis, later_process| {
        let distance = Distance::under(nemesis, Fence::Lease);
        let mut checker = Checker::new(&ALL, START_MS, distance).unwrap();
        checker.add(&made(2, (0, 5), Some(1)));
        checker.add(&made(1, (6, 9), later_process));
        checker.violations()
    };
    let why = wrong(Nemesis::KillLeader, Some(1));
    assert!(why.len() == 1 && why[0].contains("OfProcess(Node(1), 1, [])"), "{why:?}");
    let in_order = [
        wrong(Nemesis::KillLeader, Some(2)),
        wrong(Nemesis::KillLeader, None),
        wrong(Nemesis::WallClock, Some(1)),
    ];
    assert_eq!(in_order.concat(), Vec::<String>::new());
}
