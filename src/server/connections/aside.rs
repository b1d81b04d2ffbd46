//! Waits for one future beside others without polling it each time that they are woken.

use futures::{StreamExt, stream::FuturesUnordered};

/// Runs `future`. It is polled only when it was woken itself, and not whenever its task is: to look whether a connection
/// ends takes locks that all connections share, and nothing of that changes from one call to the next.
pub async fn aside<F: Future>(future: F) -> F::Output {
    FuturesUnordered::from_iter([future]).select_next_some().await
}

#[cfg(test)]
pub(super) mod tests {
    use std::{
        cell::{Cell, RefCell},
        future::poll_fn,
        pin::pin,
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering::Relaxed},
        },
        task::{Context, Poll, Wake, Waker},
    };

    use super::*;

    /// How often a task was woken.
    #[derive(Default)]
    pub struct Woken(pub AtomicU64);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn what_stands_aside_is_polled_when_it_was_woken_and_not_whenever_its_task_was() {
        let (polls, own) = (Cell::new(0), RefCell::new(Waker::noop().clone()));
        let mut future = pin!(aside(poll_fn(|cx| {
            polls.set(polls.get() + 1);
            own.replace(cx.waker().clone());
            match polls.get() {
                3 => Poll::Ready("the end"),
                _ => Poll::Pending,
            }
        })));
        let task = Arc::new(Woken::default());
        let waker = Waker::from(task.clone());
        let mut poll = || future.as_mut().poll(&mut Context::from_waker(&waker));
        for polled in 1..=2 {
            for _ in 0..3 {
                assert_eq!(poll(), Poll::Pending);
            }
            assert_eq!(polls.get(), polled);
            let before = task.0.load(Relaxed);
            own.borrow().wake_by_ref();
            assert!(task.0.load(Relaxed) > before, "its task is woken, too");
        }
        assert_eq!((poll(), polls.get()), (Poll::Ready("the end"), 3));
    }
}
