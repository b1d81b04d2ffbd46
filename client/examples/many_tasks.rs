//! A thousand tasks share one client, which sends their requests in a few messages.
//! `cargo run --example many_tasks -- 127.0.0.1:7600`

use std::collections::BTreeSet;

use ratchet_client::Client;
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args().nth(1).unwrap_or("127.0.0.1:7600".to_owned());
    let client = Client::builder().servers([server]).build()?;
    let mut tasks = JoinSet::new();
    for _ in 0..1_000 {
        let client = client.clone();
        tasks.spawn(async move { client.next("book", 42).await });
    }
    let mut numbers = BTreeSet::new();
    while let Some(number) = tasks.join_next().await {
        numbers.insert(number??);
    }
    println!("{} different numbers", numbers.len());
    Ok(())
}
