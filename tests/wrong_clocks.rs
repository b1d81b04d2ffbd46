//! Wall clocks that are wrong by years: the times that a leader believes, and how a logged time is taken back.

use std::{
    pin::pin,
    process::Output,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use crate::common::{
    PATIENCE,
    cluster::Cluster,
    disk::{Disk, Fsync},
    eventually, in_time, others,
    processes::run,
    rust_client::{client_of, create_with_format, staying_at},
    until,
    wrong_clock::{off_ms, restart_with_clock},
};
use ratchet::{
    clock::{BootClock, Clock},
    metrics::HandoverEnd,
    node::{Asker, NodeContext},
    proto::{
        Refusal,
        v1::{ClockStatus, Reason, TakeWorkerBackRequest, TakeWorkerBackResponse},
    },
};
use ratchet_client::{Client, Code, Error, Key, api::HeldWorker};
use ratchet_ids::Format;
use tokio::time::Instant;

const DAY_MS: u64 = 86_400_000;
/// How far a wrong clock is off, in milliseconds: 70 years.
const WRONG_MS: i64 = 2_208_988_800_000;
/// A format with two worker ids, which does not end soon.
const TWO_WORKERS: &str = "bits zero:1=0 time-ms:48 worker:1 sequence:12";
/// A namespace of each kind whose ids have a time, with its format.
const TIMES: [(&str, &str); 3] =
    [("orders", TWO_WORKERS), ("chat", "rongcloud"), ("chapters", "yuewen-chapter")];

/// Makes an id, and returns the time in it.
async fn time_of(client: &Client, (name, format): (&str, &str)) -> Result<u64, Error> {
    let (key, parameters) = match name {
        "orders" => (None, vec![]),
        "chat" => (Some(Key::Id(5)), vec![("type", 1)]),
        _ => (Some(Key::Id(5)), vec![("table", 4), ("database", 5)]),
    };
    let id = client.next_ids(name, key, 1, &parameters).await?.remove(0);
    let format = Format::parse(format).expect("a format");
    Ok(format.decode(&id).expect("an id").parts().time_ms)
}

/// Fails unless ids of each kind are made, with a time that is near the true one.
async fn assert_true_times(client: &Client) {
    for of in TIMES {
        let began_ms = BootClock.wall_ms();
        let time_ms = time_of(client, of).await.expect("an id");
        let may_be_off_ms = if of.0 == "chapters" { DAY_MS } else { 5_000 };
        let off_ms = off_ms(time_ms, began_ms);
        assert!(off_ms <= may_be_off_ms, "{of:?}: {off_ms} ms from the time");
    }
}

fn clock_of(cluster: &Cluster, node: u64) -> ClockStatus {
    cluster.nodes[&node].context().services.status.now().clock.expect("it leads")
}

/// A cluster with a namespace of each kind whose ids have a time, and two of its nodes, whose clocks are off by so much.
async fn with_two_clocks() -> (Cluster, [(u64, Arc<AtomicI64>); 2], Client) {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let nodes = others(cluster.leader().await).map(|node| (node, Arc::new(AtomicI64::new(0))));
    for (node, off) in &nodes {
        restart_with_clock(&mut cluster, *node, off).await;
        cluster.all_answer().await;
    }
    let any = client_of(&cluster, &[1, 2, 3]);
    for (name, format) in TIMES {
        create_with_format(&any, name, format).await;
    }
    (cluster, nodes, any)
}

/// Waits until the leader knows the times of the others' clocks.
async fn clocks_are_known(cluster: &Cluster, leader: u64) {
    let known = || {
        let nodes = cluster.nodes[&leader].context().services.status.now().nodes;
        nodes.iter().filter(|node| node.clock_ahead_ms.is_some()).count() == 2
    };
    until("the others' clocks are known", known).await;
}

/// All three clocks show other times: nobody is believed, and there is nobody to hand over to.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_clock_is_wrong_makes_no_ids_of_a_time_if_no_other_is_believed_and_numbers_go_on()
 {
    let (cluster, [(wrong, off), (other, other_off)], any) = with_two_clocks().await;
    other_off.store(3_600_000, Ordering::SeqCst);
    off.store(WRONG_MS, Ordering::SeqCst);
    cluster.lead(wrong).await;
    clocks_are_known(&cluster, wrong).await;
    let term = cluster.nodes[&wrong].context().group.term();
    for node in [wrong, other] {
        let client = staying_at(&cluster, node);
        for of in TIMES {
            let error = time_of(&client, of).await.expect_err("a refusal");
            assert_eq!(error.code(), Some(Code::Unavailable), "{of:?}: {error}");
            let text = error.to_string();
            for part in ["its wall clock is not believed", "it shows 20", "ratchet transfer"] {
                assert!(text.contains(part), "{of:?}: {text}");
            }
        }
    }
    any.lease_worker("orders", "a").await.expect_err("a refusal");
    any.next("book", 1).await.expect("numbers go on");
    let clock = clock_of(&cluster, wrong);
    assert!(!clock.believed && !clock.makes_ids && !clock.alone, "{clock:?}");
    let ahead_ms = clock.ahead_ms.expect("the others' clocks are known");
    assert!(ahead_ms.abs_diff(WRONG_MS) < 3_605_000, "{ahead_ms}");
    let metrics = cluster.nodes[&wrong].context().metrics.clone();
    assert_eq!(metrics.of_set(1).clock_doubted.get(), 1);
    assert!(metrics.of_set(1).clock_refusals.get() >= 6);
    assert_eq!(cluster.nodes[&wrong].context().group.term(), term, "it leads on");

    off.store(0, Ordering::SeqCst);
    assert_true_times(&any).await;
    assert!(clock_of(&cluster, wrong).believed);
    assert_eq!(metrics.of_set(1).clock_doubted.get(), 0);
    let logged = any.list_workers("orders".to_owned()).await.expect("a list");
    for worker in logged.workers {
        assert!(worker.ceiling_ms < BootClock.wall_ms() + 60_000, "{worker:?} was logged");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_clock_is_doubted_hands_its_memory_to_one_that_is_believed_and_ids_go_on() {
    let (cluster, [(wrong, off), _], any) = with_two_clocks().await;
    off.store(WRONG_MS, Ordering::SeqCst);
    let mut expected = any.next("book", 1).await.expect("a number") + 1;
    let leader = cluster.leader().await;
    // It may have handed over again when this is answered.
    drop(cluster.client(leader).transfer(wrong).await);
    let metrics = cluster.nodes[&wrong].context().metrics.clone();
    let left = || metrics.of_set(1).handovers.get(HandoverEnd::memory) == 1;
    until("the leader whose clock is wrong has left its memory to another one", left).await;
    let right = cluster.leader_seen_by(wrong, |leader| leader != wrong).await;
    assert_true_times(&any).await;
    for client in [wrong, right].map(|node| staying_at(&cluster, node)) {
        assert_eq!(client.next("book", 1).await.expect("a number"), expected, "no gap");
        expected += 1;
    }

    // The clock of a node that leads jumps: the time goes on without it, and the node hands over as well.
    off.store(0, Ordering::SeqCst);
    cluster.lead(wrong).await;
    assert_true_times(&any).await;
    off.store(WRONG_MS, Ordering::SeqCst);
    assert_true_times(&any).await;
    until("it has left its memory again", || {
        metrics.of_set(1).handovers.get(HandoverEnd::memory) == 2
    })
    .await;
    cluster.leader_seen_by(wrong, |leader| leader != wrong).await;
    assert_true_times(&any).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_dead_has_told_its_time_so_that_of_two_others_the_wrong_one_hands_over() {
    let (mut cluster, [(wrong, off), (right, _)], _) = with_two_clocks().await;
    let dies = (1..=3).find(|id| ![wrong, right].contains(id)).expect("a third node");
    cluster.lead(dies).await;
    for node in [wrong, right] {
        // It has heard this leader when it has answered.
        cluster.caught_up(dies, node).await;
    }
    off.store(WRONG_MS, Ordering::SeqCst);
    cluster.crash(dies).await;
    let metrics = cluster.nodes[&wrong].context().metrics.clone();
    eventually("the wrong one has led, and has left its memory to the other one", async || {
        if metrics.of_set(1).handovers.get(HandoverEnd::memory) > 0 {
            return Some(());
        }
        let leader = cluster.leader().await;
        if leader != wrong {
            // It may have handed over again when this is answered.
            drop(cluster.client(leader).transfer(wrong).await);
        }
        None
    })
    .await;
    cluster.leader_seen_by(wrong, |leader| leader == right).await;
    for node in [wrong, right] {
        assert_true_times(&client_of(&cluster, &[node])).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_tells_how_far_the_others_clocks_are_from_its_own() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let [behind, _] = others(leader);
    let off = Arc::new(AtomicI64::new(-3_600_000));
    restart_with_clock(&mut cluster, behind, &off).await;
    let told = || {
        let nodes = cluster.nodes[&leader].context().services.status.now().nodes;
        let of = |node| nodes.iter().find(|one| one.id == node).and_then(|one| one.clock_ahead_ms);
        (of(behind), of(leader))
    };
    let is_told = || told().0.is_some_and(|ahead_ms| ahead_ms < -3_000_000);
    until("the leader knows the clock that is behind", is_told).await;
    assert!(told().0.expect("known") > -3_700_000, "{:?}", told());
    assert_eq!(told().1, None, "its own is what it is compared with");
    assert!(clock_of(&cluster, leader).believed, "a majority agrees");
}

/// Runs `ratchet worker take-back` at a node.
fn take_back(server: &str, namespace: &str, worker: u32, ceiling_ms: u64, vouch: bool) -> Output {
    let (worker, ceiling) = (worker.to_string(), ceiling_ms.to_string());
    let mut args = vec!["worker", "take-back", namespace, &worker, "--ceiling-ms", &ceiling];
    args.extend(["--server", server]);
    if vouch {
        args.push("--vouch");
    }
    run(&args)
}

fn assert_refused(output: &Output, says: &str) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{error}");
    assert!(error.contains(says), "{says}: {error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_that_a_sole_voter_logged_under_a_wrong_clock_is_taken_back_by_whoever_vouches_for_it()
 {
    let mut cluster = Cluster::start(1, |_| {}).await;
    let off = Arc::new(AtomicI64::new(WRONG_MS));
    restart_with_clock(&mut cluster, 1, &off).await;
    cluster.all_answer().await;
    let client = client_of(&cluster, &[1]);
    for (name, format) in TIMES {
        create_with_format(&client, name, format).await;
    }
    let clock = clock_of(&cluster, 1);
    assert!(clock.alone && clock.believed, "nobody else can say what time it is: {clock:?}");
    let poisoned = client.lease_worker("orders", "a").await.expect("a lease");
    let far_ms = BootClock.wall_ms() + 2_000_000_000_000;
    assert!(poisoned.ceiling_ms > far_ms, "{poisoned:?}");
    assert!(time_of(&client, TIMES[2]).await.expect("an id") > far_ms);

    let right = Arc::new(AtomicI64::new(0));
    restart_with_clock(&mut cluster, 1, &right).await;
    cluster.all_answer().await;
    let client = client_of(&cluster, &[1]);
    let server = cluster.address(1).to_string();
    let sane = client.lease_worker("orders", "b").await.expect("the other worker id");
    assert!(sane.worker != poisoned.worker && sane.ceiling_ms < far_ms, "{sane:?}");
    let listed = run(&["worker", "list", "orders", "--server", &server]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let row = format!("a clock was wrong (ceiling {}, see take-back)", poisoned.ceiling_ms);
    assert!(listed.contains(&row), "{listed}");

    let worker = poisoned.worker;
    let unvouched = take_back(&server, "orders", worker, poisoned.ceiling_ms, false);
    assert_refused(&unvouched, "only if you vouch for it that nobody makes ids under it any more");
    let another = take_back(&server, "orders", worker, poisoned.ceiling_ms + 1, true);
    assert_refused(&another, "has no lease with the ceiling");
    let near = take_back(&server, "orders", sane.worker, sane.ceiling_ms, true);
    assert_refused(&near, "does not reach further ahead than right clocks let it");
    let of_key = take_back(&server, "chat", 0, poisoned.ceiling_ms, true);
    assert_refused(&of_key, "their times are numbers of its keys, which never go back");
    let began_ms = BootClock.wall_ms();
    let taken = take_back(&server, "orders", worker, poisoned.ceiling_ms, true);
    let error = String::from_utf8_lossy(&taken.stderr);
    assert!(taken.status.success(), "{error}");

    let workers = client.list_workers("orders".to_owned()).await.expect("a list").workers;
    let ends_ms = workers[worker as usize].ceiling_ms;
    // Above all that a leader with a right clock may have granted.
    assert!(ends_ms >= began_ms + 120_000, "{} ms", ends_ms - began_ms);
    assert!(ends_ms <= BootClock.wall_ms() + 131_000, "{} ms", ends_ms - began_ms);
    let held = HeldWorker { worker, token: poisoned.token };
    let lost = client.renew_worker("orders", "a", held).await.expect_err("it is lost");
    assert_eq!(lost.code(), Some(Code::FailedPrecondition), "{lost}");

    assert!(time_of(&client, TIMES[2]).await.expect("an id") > far_ms, "a date never goes back");
    let dates = client.list_workers("chapters".to_owned()).await.expect("a date").workers;
    let taken = take_back(&server, "chapters", 0, dates[0].ceiling_ms, true);
    assert!(taken.status.success(), "{}", String::from_utf8_lossy(&taken.stderr));
    let date_ms = time_of(&client, TIMES[2]).await.expect("an id");
    assert!(date_ms.abs_diff(BootClock.wall_ms()) <= DAY_MS, "{date_ms} is not today's date");
}

/// A node that knows a date which it logged under a wrong clock, whose clock is right now, on a disk that hangs on demand.
struct WrongDate {
    cluster: Cluster,
    disk: Disk,
    client: Client,
    ceiling_ms: u64,
}

impl WrongDate {
    async fn start() -> WrongDate {
        let mut cluster = Cluster::start(1, |_| {}).await;
        let off = Arc::new(AtomicI64::new(WRONG_MS));
        restart_with_clock(&mut cluster, 1, &off).await;
        cluster.all_answer().await;
        let client = client_of(&cluster, &[1]);
        create_with_format(&client, TIMES[2].0, TIMES[2].1).await;
        let far_ms = time_of(&client, TIMES[2]).await.expect("an id");
        cluster.crash(1).await;
        let (disk, mut seams) = (Disk::default(), cluster.seams(1));
        seams.storage = disk.under(&seams.storage);
        cluster.start_node_with(1, seams).await;
        cluster.all_answer().await;
        let client = client_of(&cluster, &[1]);
        assert_eq!(time_of(&client, TIMES[2]).await.expect("an id"), far_ms, "the leader knows it");
        let dates = client.list_workers(TIMES[2].0.to_owned()).await.expect("a date").workers;
        let ceiling_ms = dates[0].ceiling_ms;
        WrongDate { cluster, disk, client, ceiling_ms }
    }
}

/// Has a node take a date back.
async fn take_back_date(
    node: &NodeContext, ceiling_ms: u64, deadline: Instant,
) -> Result<TakeWorkerBackResponse, Refusal> {
    let request = TakeWorkerBackRequest {
        namespace: TIMES[2].0.to_owned(),
        worker: 0,
        ceiling_ms,
        vouched: true,
    };
    node.operations.ask(&request, &Asker::node(1), deadline).await.map(|(answer, _)| answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_date_is_taken_back_although_its_caller_leaves_and_others_wait_no_longer_than_they_may() {
    let WrongDate { cluster, disk, client, ceiling_ms } = WrongDate::start().await;
    let node = cluster.nodes[&1].context();
    let take_back = |deadline| take_back_date(node, ceiling_ms, deadline);
    let hanging = disk.hang_then(Fsync::Succeeds);
    let mut leaves = Box::pin(take_back(Instant::now() + PATIENCE));
    assert!(futures::poll!(&mut leaves).is_pending(), "the disk hangs");
    until("the entry is on its way to the disk", || disk.hanging() > 0).await;
    let waits = take_back(Instant::now() + Duration::from_millis(100));
    let waited = in_time("an answer at the deadline", waits).await;
    let waited = waited.expect_err("it waits for the disk");
    assert_eq!(waited.code(), tonic::Code::DeadlineExceeded, "{waited}");
    assert!(waited.message().contains("nothing was taken back"), "{waited}");
    drop(leaves);
    drop(hanging);
    let date_ms = time_of(&client, TIMES[2]).await.expect("an id");
    assert!(date_ms.abs_diff(BootClock.wall_ms()) <= DAY_MS, "{date_ms} is not today's date");
}

/// Another leader would say that there is no such lease any more, and that nothing was done.
#[tokio::test(flavor = "multi_thread")]
async fn a_date_whose_leader_is_lost_while_it_is_taken_back_is_asked_of_no_other_leader() {
    let WrongDate { cluster, disk, ceiling_ms, .. } = WrongDate::start().await;
    let node = cluster.nodes[&1].context();
    let lease = node.group.leadership().borrow().own.clone().expect("it leads");
    let hanging = disk.hang_then(Fsync::Succeeds);
    let mut taking = pin!(take_back_date(node, ceiling_ms, Instant::now() + 2 * PATIENCE));
    assert!(futures::poll!(&mut taking).is_pending(), "the disk hangs");
    until("the entry is on its way to the disk", || disk.hanging() > 0).await;
    lease.void();
    let lost = in_time("an answer long before the deadline", taking).await;
    let lost = lost.expect_err("nobody knows");
    assert_eq!(lost.reason(), Reason::OutcomeUnknown, "{lost}");
    assert!(lost.message().contains("ratchet worker list chapters"), "{lost}");
    drop(hanging);
}
