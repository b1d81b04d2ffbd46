//! Founds the cluster and creates the namespaces, and so waits until the cluster has started.

use std::{io, time::Duration};

use tonic::{Code, Status};

use crate::{
    client::Client,
    cluster::Product,
    gapless,
    history::Action,
    ids,
    proto::{CreateNamespaceRequest, KeyKind},
    slow_reader,
    target::{INCREMENT, NAMED, OWN, SHARED, SHARED_SECTION_SIZE, Target},
};

/// How long a cluster may take to start.
const START_MAX: Duration = Duration::from_secs(30);
const RETRY_EVERY: Duration = Duration::from_millis(50);

/// Has one node found the cluster, and asks again until it has. `last_error` is why it has not yet.
pub async fn found(client: &mut Client, product: Product, last_error: &mut String) {
    // The other product is a cluster from the start.
    while product == Product::Ratchet
        && let Err(error) = client.found().await
    {
        *last_error = error;
        tokio::time::sleep(RETRY_EVERY).await;
    }
}

/// Has one node found the cluster and create all namespaces, the namespaces of ids if ids are asked for.
///
/// # Errors
/// The node did not do so within 30 s. The text names its last error.
pub async fn create(
    client: &mut Client, product: Product, step: u64, with_ids: bool,
) -> io::Result<()> {
    let kinds = [
        (OWN, 1, KeyKind::Id),
        (SHARED, SHARED_SECTION_SIZE, KeyKind::Id),
        (NAMED, 1, KeyKind::Name),
    ];
    let namespaces = kinds.map(|(name, section_size, key_kind)| CreateNamespaceRequest {
        name: name.to_owned(),
        key_kind: key_kind.into(),
        step: Some(step),
        increment: Some(INCREMENT),
        section_size: Some(section_size),
        ..CreateNamespaceRequest::default()
    });
    let mut last_error = String::new();
    let creating = async {
        found(client, product, &mut last_error).await;
        let others = std::iter::once(slow_reader::namespace()).chain(gapless::namespaces());
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
