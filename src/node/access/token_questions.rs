//! The queue of callers whose tokens this node does not know. The leader is asked about one after the other.

use std::time::Duration;

use tokio::{
    sync::{Mutex, Semaphore, SemaphorePermit},
    time::{Instant, sleep_until, timeout_at},
};

/// How often the leader is asked at most whether it knows a token: strangers may show any.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// How many callers wait at most until it is asked. Others are told to ask again.
const ASKING_MAX: usize = 64;

/// The callers that wait until the leader is asked about their tokens.
pub(super) struct TokenQuestions {
    /// Places for those who wait until the leader is asked whether it knows a token.
    asking: Semaphore,
    /// When it may be asked next.
    ask_next: Mutex<Instant>,
}

impl TokenQuestions {
    /// Nobody waits yet.
    pub fn new() -> Self {
        let (asking, ask_next) = (Semaphore::new(ASKING_MAX), Mutex::new(Instant::now()));
        TokenQuestions { asking, ask_next }
    }

    /// Waits until the leader may be asked, before `deadline`. `None` if too many wait, or it is not in time. A caller that
    /// waits here holds its message, so the place is kept until the leader has answered.
    pub async fn wait_for_turn(&self, deadline: Instant) -> Option<SemaphorePermit<'_>> {
        let place = self.asking.try_acquire().ok()?;
        let turn = async {
            let mut next = self.ask_next.lock().await;
            sleep_until(*next).await;
            *next = Instant::now() + ASK_EVERY;
        };
        timeout_at(deadline, turn).await.ok()?;
        Some(place)
    }
}
