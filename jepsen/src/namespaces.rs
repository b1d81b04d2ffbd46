//! The namespaces in which callers ask.

use std::{io, time::Duration};

use tonic::{Code, Status};

use crate::{
    client::Target,
    cluster::Product,
    history::Action,
    nemesis::Stage,
    proto::CreateNamespaceRequest,
    result::Options,
    slow_reader,
    workload::{OWN, SHARED, SHARED_SECTION_SIZE},
};

const STARTING: Duration = Duration::from_secs(30);

/// Creates them.
///
/// # Errors
/// The cluster did not start in time.
pub async fn make_namespaces(options: &Options, stage: &Stage) -> io::Result<()> {
    let sizes = [(OWN, 1), (SHARED, SHARED_SECTION_SIZE)];
    let ours = sizes.map(|(name, section_size)| CreateNamespaceRequest {
        name: name.to_owned(),
        step: Some(options.step),
        section_size: Some(section_size),
        ..CreateNamespaceRequest::default()
    });
    let mut last = String::new();
    let making = async {
        for namespace in ours.into_iter().chain([slow_reader::namespace()]) {
            while let Err(status) = make_namespace(options, stage, &namespace).await {
                last = status.to_string();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    };
    let made = tokio::time::timeout(STARTING, making).await;
    made.map_err(|_| {
        let limit = STARTING.as_secs();
        io::Error::other(format!(
            "the cluster did not start within {limit} s: {last}"
        ))
    })
}

async fn make_namespace(
    options: &Options,
    stage: &Stage,
    namespace: &CreateNamespaceRequest,
) -> Result<(), Status> {
    let mut client = stage.cluster.client(1);
    if options.plan.product == Product::MaxWins {
        // It knows no namespaces; it only has to be there.
        let target = Target {
            namespace: OWN,
            id: u64::MAX,
        };
        return client.ask(&target, Action::Current).await.map(drop);
    }
    match client.admin().create_namespace(namespace.clone()).await {
        Err(status) if status.code() == Code::AlreadyExists => Ok(()),
        made => made.map(drop),
    }
}
