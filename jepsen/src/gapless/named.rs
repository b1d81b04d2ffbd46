//! Callers that give each request an id of their own: each asks until it is answered, and now and then once more. Each
//! request gets its numbers once.

use rand::{RngExt, rngs::StdRng};
use tonic::Code;

use super::{
    INVOICE,
    asked::{self, Shared, pause},
};
use crate::{
    client::{Client, FirstAndLast},
    history::Interface,
    target::Target,
};

/// One caller.
pub(super) struct Caller {
    pub shared: Shared,
    /// The prefix of its request ids.
    pub name: String,
    pub keys: u64,
    pub rng: StdRng,
}

impl asked::Caller for Caller {
    async fn call(&mut self, number: u64) {
        let id = format!("{}-{number}", self.name);
        self.request(&id).await;
        pause(&mut self.rng, 1..10).await;
    }
}

impl Caller {
    /// Makes one request, with this id.
    async fn request(&mut self, id: &str) {
        let target = Target { namespace: INVOICE, id: self.rng.random_range(0..self.keys) };
        let call = self.shared.begin(target, self.rng.random_range(1..4));
        let (target, count) = (&call.target, call.count);
        let Some((node, answer)) = self.until_answered(target, count, id).await else {
            return;
        };
        self.shared.answered(&call, answer, (node, Interface::Unary), id);
        if self.rng.random_ratio(1, 4) {
            pause(&mut self.rng, 0..50).await;
            if let Some((_, again)) = self.until_answered(target, count, id).await
                && again != answer
            {
                let why = format!("request {id} was answered {answer:?}, and then {again:?}");
                self.shared.answers.violated(why);
            }
        }
    }

    /// The answer to a request, and the node that gave it, however often it takes. `None` if it was refused, which is a
    /// violation.
    async fn until_answered(
        &mut self, target: &Target, count: u64, id: &str,
    ) -> Option<(u64, FirstAndLast)> {
        loop {
            let (node, address) = self.shared.any_node(&mut self.rng);
            let mut client = Client::new(address);
            match client.next_once(target, count, id).await {
                Ok(answer) => return Some((node, answer)),
                Err(status) if status.code() == Code::FailedPrecondition => {
                    self.shared.answers.violated(format!("request {id} was refused: {status}"));
                    return None;
                }
                Err(_) => pause(&mut self.rng, 5..20).await,
            }
        }
    }
}
