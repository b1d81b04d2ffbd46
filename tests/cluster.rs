//! Any node of a cluster hands out strictly increasing numbers.

use crate::common::{cluster::Cluster, id};

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
