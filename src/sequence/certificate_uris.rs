//! The URIs by which certificates name nodes and clients.

use super::identifiers::NodeId;

/// The URI by which a certificate names a node.
pub fn node_uri(cluster: &str, node: NodeId) -> String {
    format!("ratchet://{cluster}/{node}")
}

/// The URI by which a certificate names a client. No node has it: ids of nodes are numbers.
pub fn client_uri(cluster: &str, name: &str) -> String {
    format!("ratchet://{cluster}/client/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uris_of_nodes_and_of_clients_are_what_certificates_have_had_from_the_first() {
        assert_eq!(node_uri("orders", 1), "ratchet://orders/1");
        assert_eq!(client_uri("orders", "1"), "ratchet://orders/client/1");
    }
}
