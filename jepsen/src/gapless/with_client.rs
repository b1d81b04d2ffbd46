//! Callers with the product's client. It merges their requests, gives its messages ids of its own, and sends them
//! again.
//!
//! An error other than [`Error::OutcomeUnknown`] says that nothing was taken. With an id of the application, an unknown
//! outcome is no end: the caller asks again until it is answered.

use std::sync::Arc;

use rand::{RngExt, rngs::StdRng};
use ratchet_client::{Code, Error};

use super::{
    RECEIPT,
    asked::{self, GaplessCall, Shared, pause},
};
use crate::{
    history::Interface,
    target::Target,
    workload::{PRODUCT_CLIENT_NODE, ProductClient},
};

/// One caller.
pub(super) struct Caller {
    pub shared: Shared,
    /// The prefix of its request ids.
    pub name: String,
    /// The client, which other callers have as well.
    pub client: Arc<ProductClient>,
    /// The keys that it asks for.
    pub keys: std::ops::Range<u64>,
    pub rng: StdRng,
}

impl asked::Caller for Caller {
    async fn call(&mut self, number: u64) {
        let id = format!("{}-{number}", self.name);
        let target = Target { namespace: RECEIPT, id: self.rng.random_range(self.keys.clone()) };
        let call = self.shared.begin(target, self.rng.random_range(1..4));
        if self.rng.random_ratio(1, 4) {
            self.until_answered(&call, &id).await;
        } else if let Ok(client) = self.client.get() {
            let asked = client.next_range(RECEIPT, call.target.id, call.count).await;
            match asked {
                Ok(numbers) => self.answered(&call, numbers, &id),
                Err(error) => self.failed(&call, &error),
            }
        }
        pause(&mut self.rng, 5..20).await;
    }
}

impl Caller {
    /// Asks with an id of the application, until it is answered.
    async fn until_answered(&mut self, call: &GaplessCall, id: &str) {
        loop {
            if let Ok(client) = self.client.get() {
                let asked = client.next_once(RECEIPT, call.target.id, call.count, id);
                match asked.await {
                    Ok(numbers) => return self.answered(call, numbers, id),
                    Err(error) if error.code() == Some(Code::FailedPrecondition) => {
                        let why = format!("request {id} was refused: {error}");
                        return self.shared.answers.violated(why);
                    }
                    Err(Error::OutcomeUnknown { request_id, .. })
                        if request_id.as_deref() != Some(id.as_bytes()) =>
                    {
                        let why = format!("the error of request {id} names {request_id:?}");
                        return self.shared.answers.violated(why);
                    }
                    Err(_) => {}
                }
            }
            pause(&mut self.rng, 5..20).await;
        }
    }

    fn answered(&self, call: &GaplessCall, numbers: ratchet_client::Numbers, id: &str) {
        let answer = (numbers.first, numbers.last);
        let through = (PRODUCT_CLIENT_NODE, Interface::ProductClient);
        self.shared.answered(call, answer, through, id);
    }

    fn failed(&self, call: &GaplessCall, error: &Error) {
        match error {
            Error::OutcomeUnknown { .. } => self.shared.unknown(call),
            Error::Disorder { .. } => self.shared.answers.violated(error.to_string()),
            // Nothing was taken.
            _ => {}
        }
    }
}
