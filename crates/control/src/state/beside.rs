//! What older versions don't know of members, beside what they do.

use std::mem::take;

use serde::{Deserialize, Serialize};
use spillway_types::NodeName;

use crate::state::{Ledger, Table};
use crate::{
    CertificateSerial, NodeId, NodeRight, Records, RemovedNode, RevokedCertificate, TokenId,
    TokenOrigin,
};

/// What wire version 5 added about members, written behind all that older versions have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Beside {
    is_enforced: bool,
    node_rights: Table<NodeId, NodeRight>,
    token_origins: Table<TokenId, TokenOrigin>,
    removed_nodes: Table<NodeName, RemovedNode>,
    revoked_certificates: Table<CertificateSerial, RevokedCertificate>,
}

impl Beside {
    /// Takes that part out of a state.
    pub(crate) fn take_from(records: &mut Records, ledger: &mut Ledger) -> Self {
        Self {
            is_enforced: take(&mut ledger.is_enforced),
            node_rights: take(&mut records.node_rights),
            token_origins: take(&mut records.token_origins),
            removed_nodes: take(&mut records.removed_nodes),
            revoked_certificates: take(&mut records.revoked_certificates),
        }
    }

    /// Puts it where it belongs.
    pub(crate) fn put_into(self, records: &mut Records, ledger: &mut Ledger) {
        ledger.is_enforced = self.is_enforced;
        records.node_rights = self.node_rights;
        records.token_origins = self.token_origins;
        records.removed_nodes = self.removed_nodes;
        records.revoked_certificates = self.revoked_certificates;
    }
}
