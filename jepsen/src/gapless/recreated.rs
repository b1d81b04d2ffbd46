//! A caller that deletes its namespace now and then, and creates it again. Numbers of a key go on growing, and follow one
//! another without a hole for as long as the namespace exists.
//!
//! A copy of a request to delete may arrive late, and delete the namespace that was created since. Then there is no such
//! namespace, and the caller creates it again.

use rand::{RngExt, rngs::StdRng};
use tonic::Code;

use super::{
    DRAFT,
    asked::{self, Shared, pause},
    namespace_of,
};
use crate::{
    client::{Client, bounded},
    history::Interface,
    proto::DeleteNamespaceRequest,
    target::Target,
};

/// After how many calls the namespace is deleted.
const LIFE: u64 = 40;

/// The caller.
pub(super) struct Caller {
    pub shared: Shared,
    pub rng: StdRng,
    /// The last number that it got, or that is skipped because the namespace was deleted.
    pub last: u64,
    /// Whether the namespace is as old as its last number.
    pub goes_on: bool,
}

impl asked::Caller for Caller {
    async fn call(&mut self, number: u64) {
        if number % LIFE == LIFE - 1 {
            self.delete().await;
            self.create().await;
        }
        self.next(number).await;
        pause(&mut self.rng, 1..10).await;
    }
}

impl Caller {
    /// Takes numbers, however often it takes.
    async fn next(&mut self, number: u64) {
        let id = format!("draft-{number}");
        let target = Target { namespace: DRAFT, id: 0 };
        let call = self.shared.begin(target, self.rng.random_range(1..4));
        loop {
            let (node, mut client) = self.any_node();
            match client.next_once(&call.target, call.count, &id).await {
                Ok(answer) => {
                    self.shared.answered(&call, answer, (node, Interface::Unary), &id);
                    return self.judge(answer, &id);
                }
                Err(status) if status.code() == Code::NotFound => self.create().await,
                Err(_) => pause(&mut self.rng, 5..20).await,
            }
        }
    }

    fn judge(&mut self, (first, last): (u64, u64), id: &str) {
        let before = self.last;
        if first <= before || (self.goes_on && first != before + 1) {
            let goes_on = if self.goes_on { "the same" } else { "a new" };
            self.shared.answers.violated(format!(
                "request {id} was answered {first} to {last}, after {before}, in {goes_on} namespace {DRAFT}"
            ));
        }
        (self.last, self.goes_on) = (last, true);
    }

    async fn delete(&mut self) {
        let request = DeleteNamespaceRequest {
            namespace: DRAFT.to_owned(),
            confirm: DRAFT.to_owned(),
            forget: false,
        };
        loop {
            let (_, mut client) = self.any_node();
            match client.admin().delete_namespace(bounded(request.clone())).await {
                Ok(deleted) => {
                    let floor = deleted.into_inner().floor.unwrap_or_default();
                    if floor < self.last {
                        self.shared.answers.violated(format!(
                            "{DRAFT} begins above {floor} again, and {} was handed out",
                            self.last
                        ));
                    }
                    self.last = self.last.max(floor);
                    break;
                }
                Err(status) if status.code() == Code::NotFound => break,
                Err(_) => pause(&mut self.rng, 5..20).await,
            }
        }
        self.goes_on = false;
    }

    async fn create(&mut self) {
        self.goes_on = false;
        loop {
            let (_, mut client) = self.any_node();
            match client.admin().create_namespace(bounded(namespace_of(DRAFT))).await {
                Ok(_) => break,
                Err(status) if status.code() == Code::AlreadyExists => break,
                Err(_) => pause(&mut self.rng, 5..20).await,
            }
        }
    }

    fn any_node(&mut self) -> (u64, Client) {
        let (node, address) = self.shared.any_node(&mut self.rng);
        (node, Client::new(address))
    }
}
