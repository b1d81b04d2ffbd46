//! Waiting for something to happen, with a limit.

use std::time::Duration;

/// The longest that anything in a test may take before the test fails: no slow machine takes so long.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// How often a condition is looked at that nothing announces.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits for `event`; fails with the name of `what` was awaited if it takes longer than [`PATIENCE`].
pub async fn in_time<T>(what: &str, event: impl Future<Output = T>) -> T {
    let event = tokio::time::timeout(PATIENCE, event).await;
    event.unwrap_or_else(|_| panic!("waited {PATIENCE:?} in vain for: {what}"))
}

/// Looks again and again until `look` answers something. It is for events that cannot be awaited.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    in_time(what, looking).await
}

/// Looks again and again until `holds` is true. It is for events that cannot be awaited.
pub async fn until(what: &str, holds: impl Fn() -> bool) {
    eventually(what, async || holds().then_some(())).await;
}
