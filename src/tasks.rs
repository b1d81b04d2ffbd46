//! A node's long-lived tasks, watched: one that panics fails the node.
//!
//! A node that lost one of them would go on, look alive, and do a part of its work no more: it would
//! forward nothing, or raise no ceiling. Nothing can be said of the state that a panic left behind, so
//! that the node stops, and comes back with what is on its disk.
//!
//! Tasks that answer one request, or one connection, are not started here: their panic ends that
//! request, and the node goes on.
//!
//! Invariant: what was started here, or by what was started here, does not end by a panic unnoticed.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, resume_unwind},
};

use futures::FutureExt;

use crate::watch;

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
        /// Which.
        task: &'static str,
        /// What it said.
        message: String,
    },
    /// No cluster can be founded with its configuration, as the text tells.
    #[error("{0}")]
    Founding(String),
    /// Something else, which the text tells.
    #[error("{0}")]
    Other(String),
}

/// The tasks of one node, and why it must stop once it must.
#[derive(Clone, Default)]
pub struct Tasks {
    failed: watch::Sender<Option<Fault>>,
}

impl Tasks {
    /// The tasks of the node that the current task belongs to, if it was started by one of them.
    pub fn of_this_task() -> Option<Tasks> {
        OF_THIS_TASK.try_with(Clone::clone).ok()
    }

    /// Starts a task that the node cannot do without.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(self.watched(name, task));
    }

    /// `task`, which fails the node if it panics; the panic then goes on.
    pub fn watched<T: Future>(
        &self,
        name: &'static str,
        task: T,
    ) -> impl Future<Output = T::Output> + use<T> {
        let tasks = self.clone();
        let watched = async move {
            match AssertUnwindSafe(task).catch_unwind().await {
                Ok(done) => done,
                Err(panic) => {
                    let message = text_of(&*panic);
                    tasks.fail(Fault::Panic {
                        task: name,
                        message,
                    });
                    resume_unwind(panic)
                }
            }
        };
        OF_THIS_TASK.scope(self.clone(), watched)
    }

    /// Has the node stop. The first fault is the one that is told.
    pub fn fail(&self, fault: Fault) {
        tracing::error!(%fault, "the node must stop");
        self.failed.send_if_modified(|failed| {
            let first = failed.is_none();
            failed.get_or_insert(fault);
            first
        });
    }

    /// Becomes the fault once the node must stop.
    pub fn failed(&self) -> watch::Receiver<Option<Fault>> {
        self.failed.subscribe()
    }
}

/// What a panic says: `panic!` makes it a `&str` or a `String`.
fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "it does not say why".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_told_with_the_name_of_its_task() {
        let tasks = Tasks::default();
        tasks.spawn("sum", async { panic!("{} is odd", 3) });
        let fault = tasks.failed().wait_for(Option::is_some).await.unwrap();
        let fault = fault.expect("waited for");
        assert_eq!(
            fault,
            Fault::Panic {
                task: "sum",
                message: "3 is odd".to_owned()
            }
        );
        assert!(fault.to_string().contains("\"sum\" panicked: 3 is odd"));
    }

    #[tokio::test]
    async fn the_tasks_of_a_task_belong_to_the_same_node() {
        let tasks = Tasks::default();
        assert!(Tasks::of_this_task().is_none());
        tasks.spawn("parent", async {
            let of_the_parent = Tasks::of_this_task().expect("started here");
            of_the_parent.spawn("child", async { panic!("no more") });
        });
        let fault = tasks.failed().wait_for(Option::is_some).await.unwrap();
        assert!(matches!(fault, Some(Fault::Panic { task: "child", .. })));
    }

    #[tokio::test]
    async fn the_first_fault_is_the_one_that_is_told() {
        let tasks = Tasks::default();
        tasks.fail(Fault::Other("first".into()));
        tasks.fail(Fault::Other("second".into()));
        let told = tasks.failed().borrow().clone();
        assert_eq!(told, Some(Fault::Other("first".into())));
    }
}
