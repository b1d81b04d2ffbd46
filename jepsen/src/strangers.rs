//! Callers that show nothing. A secure cluster refuses them: otherwise a run would say nothing about a secure one.

use std::{io, time::Duration};

use tokio::time::{Instant, sleep};
use tonic::{Code, Status};

use crate::{
    address::Address,
    client::{Client, FirstAndLast},
    history::Action,
    target::Target,
};

/// How long a node may take to refuse a caller. It may not be able to say who leads yet.
const REFUSED_MAX: Duration = Duration::from_secs(10);
const RETRY_EVERY: Duration = Duration::from_millis(50);

/// Sees that the node at `address` refuses callers without TLS, and callers that show a certificate and no token. Where
/// callers show nothing in any case there is nothing to see.
///
/// # Errors
/// It answers one of them, or does not say within 10 s that nothing is granted to the certificate.
pub async fn are_refused(address: &Address) -> io::Result<()> {
    let Some(without_token) = address.without_token() else {
        return Ok(());
    };
    let served = |how: &str| io::Error::other(format!("a caller without {how} was served"));
    if ask(&Address::from(address.at)).await.is_ok() {
        return Err(served("TLS"));
    }
    let until = Instant::now() + REFUSED_MAX;
    loop {
        match ask(&without_token).await {
            Ok(_) => return Err(served("a token")),
            // Its certificate lets it in, and is granted nothing.
            Err(status) if status.code() == Code::PermissionDenied => return Ok(()),
            Err(status) if Instant::now() > until => {
                let why = format!(
                    "a caller without a token was not told that nothing is granted to it, but: {status}"
                );
                return Err(io::Error::other(why));
            }
            Err(_) => sleep(RETRY_EVERY).await,
        }
    }
}

async fn ask(address: &Address) -> Result<FirstAndLast, Status> {
    Client::new(address.clone()).ask(&Target::UNUSED, Action::Current).await
}
