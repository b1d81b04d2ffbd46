//! A node's long-lived tasks: a panic in one of them stops the node.
//!
//! Without that, the node would go on and look alive, but a part of its work would not be done any more:
//! it would forward nothing, or raise no ceiling. The state that a panic leaves behind cannot be trusted,
//! so the node stops, and starts again from what is on its disk.
//!
//! Tasks that serve one request or one connection are not started here. A panic in one of them ends that
//! request or connection, and the node goes on.
//!
//! Invariant: no panic goes unnoticed in a task that was started here, or in a task of Raft's that such a
//! task started.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, resume_unwind},
};

use futures::{FutureExt, future::BoxFuture};

use crate::ordered_watch;

tokio::task_local! {
    /// The node that the current task belongs to.
    static OF_THIS_TASK: Tasks;
}

/// Why a node must stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// One of its tasks panicked.
    #[error(
        "the task {task:?} panicked: {message}. This is a bug in ratchet: please report it, with the \
         log; then start the node again"
    )]
    Panic {
        /// The task's name.
        task: &'static str,
        /// The panic's message.
        message: String,
    },
    /// Nothing is wrong with the node or its disk: it goes on once it is started again. The text says why.
    #[error("{0}")]
    NeedsRestart(String),
    /// Another reason, which the text says.
    #[error("{0}")]
    CannotGoOn(String),
}

/// The tasks of one node, and the fault that stops the node, once there is one.
#[derive(Clone, Default)]
pub struct Tasks {
    failed: ordered_watch::Sender<Option<Fault>>,
}

impl Tasks {
    /// The tasks of the node that the current task belongs to; `None` if it was not started here.
    pub fn of_this_task() -> Option<Tasks> {
        OF_THIS_TASK.try_with(Clone::clone).ok()
    }

    /// Starts a task. A panic in it stops the node.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(self.watched(name, task));
    }

    /// Wraps `task` so that a panic in it stops the node. The panic then continues.
    ///
    /// It is boxed, so that the runtime's code is compiled once for all tasks with the same result.
    pub fn watched<T: Send + 'static>(
        &self, name: &'static str, task: impl Future<Output = T> + Send + 'static,
    ) -> BoxFuture<'static, T> {
        self.watched_box(name, task.boxed())
    }

    fn watched_box<T: Send + 'static>(
        &self, name: &'static str, task: BoxFuture<'static, T>,
    ) -> BoxFuture<'static, T> {
        let tasks = self.clone();
        let watched = async move {
            match AssertUnwindSafe(task).catch_unwind().await {
                Ok(done) => done,
                Err(panic) => {
                    let message = text_of(&*panic);
                    tasks.fail(Fault::Panic { task: name, message });
                    resume_unwind(panic)
                }
            }
        };
        OF_THIS_TASK.scope(self.clone(), watched).boxed()
    }

    /// Stops the node. The first fault is the one that is reported.
    pub fn fail(&self, fault: Fault) {
        // First: logging may wait for the reader of the log.
        self.failed.send_if_modified(|failed| {
            let first = failed.is_none();
            failed.get_or_insert_with(|| fault.clone());
            first
        });
        tracing::error!(%fault, "the node must stop");
    }

    /// Watches for the fault that stops the node.
    pub fn failed(&self) -> ordered_watch::Receiver<Option<Fault>> {
        self.failed.subscribe()
    }
}

/// The message of a panic: `panic!` makes it a `&str` or a `String`.
fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "it has no message".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing::{Event, Subscriber};
    use tracing_subscriber::{
        Layer, Registry,
        layer::{Context, SubscriberExt},
    };

    use super::*;

    #[tokio::test]
    async fn a_panic_is_reported_with_the_name_of_its_task() {
        let tasks = Tasks::default();
        tasks.spawn("sum", async { panic!("{} is odd", 3) });
        let fault = tasks.failed().wait_for(Option::is_some).await.unwrap();
        let fault = fault.expect("waited for");
        assert_eq!(fault, Fault::Panic { task: "sum", message: "3 is odd".to_owned() });
        assert!(fault.to_string().contains("\"sum\" panicked: 3 is odd"));
    }

    #[tokio::test]
    async fn a_task_that_a_task_started_belongs_to_the_same_node() {
        let tasks = Tasks::default();
        assert!(Tasks::of_this_task().is_none());
        tasks.spawn("parent", async {
            let of_the_parent = Tasks::of_this_task().expect("started here");
            of_the_parent.spawn("child", async { panic!("no more") });
        });
        let fault = tasks.failed().wait_for(Option::is_some).await.unwrap();
        assert!(matches!(fault, Some(Fault::Panic { task: "child", .. })));
    }

    /// Notes for each event whether the fault is known by then.
    struct FaultKnown(Tasks, Arc<Mutex<Vec<bool>>>);

    impl<S: Subscriber> Layer<S> for FaultKnown {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            let is_known = self.0.failed().borrow().is_some();
            self.1.lock().push(is_known);
        }
    }

    #[test]
    fn a_fault_is_known_before_it_is_logged() {
        let (tasks, known) = (Tasks::default(), Arc::default());
        let layer = FaultKnown(tasks.clone(), Arc::clone(&known));
        tracing::subscriber::with_default(Registry::default().with(layer), || {
            tasks.fail(Fault::CannotGoOn("why".into()));
        });
        assert_eq!(*known.lock(), [true]);
    }

    #[tokio::test]
    async fn the_first_of_two_faults_is_reported() {
        let tasks = Tasks::default();
        tasks.fail(Fault::CannotGoOn("first".into()));
        tasks.fail(Fault::CannotGoOn("second".into()));
        let told = tasks.failed().borrow().clone();
        assert_eq!(told, Some(Fault::CannotGoOn("first".into())));
    }
}
