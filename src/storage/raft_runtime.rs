//! The runtime that Raft runs on: tokio, changed in three points.
//!
//! - Random numbers come from `random`, so that a simulation decides them.
//! - Watch channels are those of `ordered_watch`, which wake their waiters in a fixed order.
//! - A panic of one of Raft's tasks fails the node (`tasks`).

use std::{io, time::Duration};

use openraft::{
    AsyncRuntime, OptionalSend, OptionalSync,
    async_runtime::watch::{self as raft_watch, RecvError, SendError},
    impls::TokioRuntime,
};

use crate::{ordered_watch, random::Random, tasks::Tasks};

/// Raft's runtime: see the module's documentation.
#[derive(Debug)]
pub struct Runtime(TokioRuntime);

impl AsyncRuntime for Runtime {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <TokioRuntime as AsyncRuntime>::Sleep;
    type Instant = <TokioRuntime as AsyncRuntime>::Instant;
    type TimeoutError = <TokioRuntime as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> =
        <TokioRuntime as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = Random;
    type Mpsc = <TokioRuntime as AsyncRuntime>::Mpsc;
    type Watch = Watch;
    type Oneshot = <TokioRuntime as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        // Raft notices a panic of its core. It does not notice one of a task that replicates or ticks.
        match Tasks::of_this_task() {
            Some(tasks) => TokioRuntime::spawn(tasks.watched("raft", future)),
            None => TokioRuntime::spawn(future),
        }
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        TokioRuntime::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        TokioRuntime::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration, future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: Self::Instant, future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn is_panic(join_error: &Self::JoinError) -> bool {
        TokioRuntime::is_panic(join_error)
    }

    fn thread_rng() -> Random {
        Random
    }

    fn new(threads: usize) -> Self {
        Runtime(TokioRuntime::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }

    fn spawn_blocking<F, T>(f: F) -> impl Future<Output = Result<T, io::Error>> + Send
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        TokioRuntime::spawn_blocking(f)
    }
}

/// Raft's watch channels, made of [`ordered_watch`].
pub struct Watch;

impl raft_watch::Watch for Watch {
    type Sender<T: OptionalSend + OptionalSync> = ordered_watch::Sender<T>;
    type Receiver<T: OptionalSend + OptionalSync> = ordered_watch::Receiver<T>;
    type Ref<'a, T: OptionalSend + 'a> = ordered_watch::Ref<'a, T>;

    fn channel<T: OptionalSend + OptionalSync>(init: T) -> (Self::Sender<T>, Self::Receiver<T>) {
        ordered_watch::channel(init)
    }
}

impl<T: OptionalSend + OptionalSync> raft_watch::WatchSender<Watch, T>
    for ordered_watch::Sender<T>
{
    fn send(&self, value: T) -> Result<(), SendError<T>> {
        if !self.is_watched() {
            return Err(SendError(value));
        }
        self.send_replace(value);
        Ok(())
    }

    fn send_if_modified<F>(&self, modify: F) -> bool
    where
        F: FnOnce(&mut T) -> bool,
    {
        ordered_watch::Sender::send_if_modified(self, modify)
    }

    fn borrow_watched(&self) -> ordered_watch::Ref<'_, T> {
        self.borrow()
    }

    fn subscribe(&self) -> ordered_watch::Receiver<T> {
        ordered_watch::Sender::subscribe(self)
    }
}

impl<T: OptionalSend + OptionalSync> raft_watch::WatchReceiver<Watch, T>
    for ordered_watch::Receiver<T>
{
    async fn changed(&mut self) -> Result<(), RecvError> {
        ordered_watch::Receiver::changed(self).await.map_err(|_| RecvError(()))
    }

    fn borrow_watched(&self) -> ordered_watch::Ref<'_, T> {
        self.borrow()
    }

    fn borrow_and_update(&mut self) -> ordered_watch::Ref<'_, T> {
        ordered_watch::Receiver::borrow_and_update(self)
    }
}

#[cfg(test)]
mod tests {
    use super::Runtime;

    #[test]
    fn the_runtime_passes_openrafts_own_suite() {
        openraft::testing::runtime::Suite::<Runtime>::test_all();
    }
}
