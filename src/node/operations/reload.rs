//! Reads the files of certificates that the settings name again, when somebody asks for it.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use crate::{
    node::{
        requests::operation::ByAskedNode,
        seams::{CertificateReader, FileRead},
        way::patience::time_to_tell,
    },
    proto::{Refusal, refusal, v1},
};

impl ByAskedNode for v1::ReloadRequest {
    type Service = Arc<dyn CertificateReader>;

    async fn carry_out(
        self, certificates: &Arc<dyn CertificateReader>, deadline: Instant,
    ) -> Result<v1::ReloadResponse, Refusal> {
        let latest = time_to_tell(deadline);
        let read = timeout_at(latest, certificates.reload()).await.map_err(|_| {
            refusal!(
                DeadlineExceeded,
                "the disk with the certificates did not answer in time; look at the disk, and ask again"
            )
        })?;
        let read = read.map_err(|why| refusal!(WrongState, "{why}"))?;
        Ok(v1::ReloadResponse { files: read.into_iter().map(to_wire).collect() })
    }
}

fn to_wire(FileRead { setting, path, changed }: FileRead) -> v1::ReloadedFile {
    let path = path.display().to_string();
    v1::ReloadedFile { setting: setting.to_owned(), path, changed }
}
