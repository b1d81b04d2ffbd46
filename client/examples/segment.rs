//! Unique numbers without a round trip, if their order across callers does not matter.
//! `cargo run --example segment -- 127.0.0.1:7600`

use ratchet_client::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args().nth(1).unwrap_or("127.0.0.1:7600".to_owned());
    let client = Client::builder().servers([server]).build()?;
    let ids = client.segment("uid", 10_001, 1_000);
    for _ in 0..5 {
        println!("{}", ids.next().await?);
    }
    Ok(())
}
