//! Any node of a cluster hands out strictly increasing numbers, and passes requests on.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use prost::Message;
use ratchet::{
    proto::v1::{GetNamespaceRequest, Namespace},
    server::Raw,
};
use tonic::{Code, Request, Status, client::Grpc};

use crate::common::{channel, cluster::Cluster, id, other_than};

#[tokio::test(flavor = "multi_thread")]
async fn every_node_answers_and_numbers_grow_across_them() {
    let cluster = Cluster::start(3, |_| {}).await;
    let mut last = 0;
    for node in [1, 2, 3, 1, 2, 3] {
        let number = cluster.client(node).next(42).await.unwrap();
        assert!(number > last, "{number} after {last}");
        last = number;
        let current = cluster.client(node).current("book", id(42)).await.unwrap();
        assert_eq!(current, Some(number));
    }
    assert_eq!(last, 6, "no number is skipped while nothing happens");
}

/// Asks a node for a namespace with these bytes.
async fn get_namespace(cluster: &Cluster, node: u64, bytes: Bytes) -> Result<Bytes, Status> {
    let mut client = Grpc::new(channel(cluster.nodes[&node].addresses().client));
    client.ready().await.expect("a connection");
    let path = "/ratchet.v1.Admin/GetNamespace".parse().expect("a path");
    client.unary(Request::new(bytes), path, Raw).await.map(tonic::Response::into_inner)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_passes_a_message_on_as_it_came_with_a_field_that_it_does_not_know() {
    let mut cluster = Cluster::configured(3, |_| {});
    let passed = Arc::new(Mutex::new(Vec::new()));
    for id in 1..=3 {
        let mut transport = cluster.transport(id);
        let passed = passed.clone();
        transport.on_administer = Box::new(move |request| {
            passed
                .lock()
                .expect("no panic")
                .push((request.method.clone(), request.message.clone()));
        });
        let seams = cluster.seams_with(transport);
        cluster.start_node_with(id, seams).await;
    }
    cluster.all_answer().await;
    let follower = other_than(cluster.leader().await);
    let mut message = GetNamespaceRequest { namespace: "book".to_owned() }.encode_to_vec();
    // This is field 1 000, a text.
    message.extend([0xc2, 0x3e, 3, b'n', b'e', b'w']);
    let message = Bytes::from(message);
    passed.lock().expect("no panic").clear();
    let answer = get_namespace(&cluster, follower, message.clone()).await.expect("an answer");
    assert_eq!(Namespace::decode(answer).expect("a namespace").name, "book");
    let method = "ratchet.v1.Admin/GetNamespace".to_owned();
    assert!(passed.lock().expect("no panic").contains(&(method, message)));

    let refused = get_namespace(&cluster, follower, Bytes::from_static(b"\xff")).await;
    let refused = refused.expect_err("it is no message");
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    assert!(refused.message().contains("ratchet.v1.Admin/GetNamespace"), "{refused}");
}
