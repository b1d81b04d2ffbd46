//! The gapless namespace of tests.

use ratchet::proto::v1::CreateNamespaceRequest;

use super::{Client, cluster::Cluster};

/// Its name.
pub const INVOICE: &str = "invoice";

/// Creates it, as `change` wants it: by itself it is asked without request ids, too.
pub async fn create_invoices(
    client: &mut Client, change: impl FnOnce(&mut CreateNamespaceRequest),
) {
    let mut create = CreateNamespaceRequest {
        name: INVOICE.to_owned(),
        gapless: true,
        request_id_optional: true,
        ..CreateNamespaceRequest::default()
    };
    change(&mut create);
    client.admin.create_namespace(create).await.expect("created");
}

/// Three nodes that have it.
pub async fn cluster_with_invoices() -> Cluster {
    let cluster = Cluster::start(3, |_| {}).await;
    create_invoices(&mut cluster.client(1), |_| {}).await;
    cluster
}
