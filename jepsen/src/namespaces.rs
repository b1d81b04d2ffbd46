//! Creates the namespaces, and so waits until the cluster has started.

use std::{io, time::Duration};

use tonic::{Code, Status};

use crate::{
    client::Client,
    cluster::Product,
    history::Action,
    ids, invoices,
    proto::CreateNamespaceRequest,
    slow_reader,
    target::{INCREMENT, OWN, SHARED, SHARED_SECTION_SIZE, Target},
};

/// How long a cluster may take to start.
const START_MAX: Duration = Duration::from_secs(30);
const RETRY_EVERY: Duration = Duration::from_millis(50);

/// Creates all namespaces through one node, those of ids if they are asked for.
///
/// # Errors
/// The node did not create them within 30 s. The text names its last error.
pub async fn create(
    client: &mut Client, product: Product, step: u64, with_ids: bool,
) -> io::Result<()> {
    let sizes = [(OWN, 1), (SHARED, SHARED_SECTION_SIZE)];
    let namespaces = sizes.map(|(name, section_size)| CreateNamespaceRequest {
        name: name.to_owned(),
        step: Some(step),
        increment: Some(INCREMENT),
        section_size: Some(section_size),
        ..CreateNamespaceRequest::default()
    });
    let mut last_error = String::new();
    let creating = async {
        let others = [slow_reader::namespace(), invoices::namespace()];
        let ids = ids::namespaces().filter(|_| with_ids);
        for namespace in namespaces.into_iter().chain(others).chain(ids) {
            while let Err(status) = create_one(client, product, &namespace).await {
                last_error = status.to_string();
                tokio::time::sleep(RETRY_EVERY).await;
            }
        }
    };
    let created = tokio::time::timeout(START_MAX, creating).await;
    created.map_err(|_| {
        let limit = START_MAX.as_secs();
        io::Error::other(format!(
            "the cluster did not start within {limit} s; the last error was {last_error}"
        ))
    })
}

async fn create_one(
    client: &mut Client, product: Product, namespace: &CreateNamespaceRequest,
) -> Result<(), Status> {
    match product {
        // It has no namespaces. It only has to answer.
        Product::MaxWins => client.ask(&Target::UNUSED, Action::Current).await.map(drop),
        Product::Ratchet => match client.admin().create_namespace(namespace.clone()).await {
            Err(status) if status.code() == Code::AlreadyExists => Ok(()),
            created => created.map(drop),
        },
    }
}
