//! A member that speaks in the name of another one: the certificate of its connection decides its identity, and not its header.

use std::collections::BTreeSet;

use ratchet::proto::v1::CreateNamespaceRequest;
use tonic::Code;

use super::removed_node::{cluster, incarnation, methods, speaker};
use crate::common::{in_time, others};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_taken_from_a_member_that_speaks_in_the_name_of_another_one() {
    let (cluster, certificates, leader) = cluster().await;
    let [liar, other] = others(leader);
    let term = cluster.client(leader).status().await.expect("the status").term;
    let before = cluster.client(leader).next(1).await.expect("a number");
    // In the name of a follower to the leader, and in that of the leader to a follower.
    for (named, to) in [(other, leader), (leader, other)] {
        let certified = (liar, incarnation(&cluster, liar));
        let mut speaker = speaker(&cluster, &certificates, certified, to, term);
        (speaker.header.from, speaker.header.from_incarnation) =
            (named, incarnation(&cluster, named));
        let answers = in_time("answers", speaker.say_all("in-the-name-of-another")).await;
        let said: BTreeSet<String> = answers.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(said, methods(), "a method was not tried");
        for (method, answer) in answers {
            let what = format!("{method} of node {named} to node {to}");
            let refused = answer.expect_err(&what);
            assert_eq!(refused.code(), Code::FailedPrecondition, "{what}: {refused}");
            let why = format!(
                "a message of node {named} came over a connection whose certificate is node {liar}'s"
            );
            assert!(refused.message().contains(&why), "{what}: {refused}");
        }
    }
    let status = cluster.client(leader).status().await.expect("the status");
    assert_eq!((status.term, status.leader), (term, Some(leader)), "all is as before");
    let number = cluster.client(leader).next(1).await.expect("a number");
    assert_eq!(number, before + 1, "nobody has taken one");
    let free =
        CreateNamespaceRequest { name: "in-the-name-of-another".to_owned(), ..Default::default() };
    let made = cluster.client(leader).admin.create_namespace(free).await;
    made.expect("nobody has made it");
}
