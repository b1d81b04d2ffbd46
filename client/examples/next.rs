//! Takes the next numbers of a key: `cargo run --example next -- 127.0.0.1:7600 book 42 3`

use ratchet_client::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let server = args.next().unwrap_or("127.0.0.1:7600".to_owned());
    let namespace = args.next().unwrap_or("book".to_owned());
    let key: u64 = args.next().unwrap_or("42".to_owned()).parse()?;
    let count: u64 = args.next().unwrap_or("3".to_owned()).parse()?;
    let client = Client::builder().servers([server]).build()?;
    for number in client.next_range(&namespace, key, count).await? {
        println!("{number}");
    }
    Ok(())
}
