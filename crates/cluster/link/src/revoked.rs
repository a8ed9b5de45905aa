//! Revoked certificates by source: the cluster's records, this node's file, and lists that other
//! nodes sent. Lists count because the CA signed them, wherever they come from.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustls::pki_types::CertificateDer;
use spillway_types::NodeName;

use crate::certs::{RevocationError, RevocationList, kept_lists, revocation_lists};

/// Maximum number of lists that are kept of other nodes. The cluster's records take their place.
const HEARD_MAX: usize = 256;
/// Longest list that is sent to other nodes: what a datagram carries, beside its own header. It has
/// room for 15 certificates.
const SENT_BYTES_MAX: usize = 1_100;
/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Shortest time between two unknown lists of one node: each costs a verification.
const CHECK_PERIOD: Duration = Duration::from_millis(100);

/// Revoked certificates by source.
#[derive(Debug, Default)]
pub(crate) struct RevokedCertificates {
    file: Option<PathBuf>,
    /// File of the lists that other nodes sent, for the next process.
    kept: Option<PathBuf>,
    sources: Mutex<Sources>,
    /// Turn of the one that writes `kept`.
    writing: Mutex<()>,
}

#[derive(Debug, Default)]
struct Sources {
    /// Serial numbers in the cluster's records.
    recorded: BTreeSet<String>,
    /// Content of the file when it was read last.
    content: Vec<u8>,
    of_file: Vec<RevocationList>,
    heard: Vec<RevocationList>,
    /// True if the lists in the file for the next process differ from `heard`.
    is_unkept: bool,
    /// Time at which an unknown list of each node was checked last.
    checked: BTreeMap<NodeName, Instant>,
}

impl RevokedCertificates {
    /// Makes the revoked certificates of a node with this file, and with this one for the lists that
    /// other nodes send.
    pub(crate) fn new(file: Option<PathBuf>, kept: Option<PathBuf>) -> Self {
        Self { file, kept, ..Self::default() }
    }

    /// Reads the lists that the last process received from other nodes. Each is verified again. A
    /// damaged file costs a warning: other nodes send the lists they know until the cluster has
    /// recorded them. Blocks for as long as the disk needs.
    pub(crate) fn load_kept(&self, authorities: &[CertificateDer<'_>]) {
        let Some(path) = self.kept.as_deref() else { return };
        let (mut lists, faults) = match read(path) {
            Ok(bytes) => kept_lists(&bytes, authorities),
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "saved revocation lists can't be read");
                return;
            }
        };
        for fault in faults {
            tracing::warn!(%fault, path = %path.display(), "a saved revocation list is ignored");
        }
        lists.truncate(HEARD_MAX);
        if !lists.is_empty() {
            let serials: BTreeSet<_> = lists.iter().flat_map(RevocationList::serials).collect();
            tracing::info!(?serials, "certificates are revoked by saved lists");
        }
        self.sources().heard = lists;
    }

    /// Writes the lists that other nodes sent for the next process, if the file has others. After an
    /// error the next call tries again. Blocks for as long as the disk needs.
    pub(crate) fn save_kept(&self) {
        let Some(path) = self.kept.as_deref() else { return };
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let lists: Vec<u8> = {
            let mut sources = self.sources();
            if !std::mem::take(&mut sources.is_unkept) {
                return;
            }
            sources.heard.iter().flat_map(RevocationList::der).copied().collect()
        };
        if let Err(error) = write(path, &lists) {
            self.sources().is_unkept = true;
            tracing::warn!(%error, path = %path.display(), "revocation lists can't be saved");
        }
    }

    /// Sets the serial numbers in the cluster's records. Lists of other nodes that are in the
    /// records completely are not needed any more.
    pub(crate) fn set_recorded(&self, recorded: BTreeSet<String>) {
        let mut sources = self.sources();
        sources.retain_heard(|list| !list.serials().is_subset(&recorded));
        sources.recorded = recorded;
    }

    /// Reads the file again and checks all lists against `authorities`, which may have changed.
    /// A missing file revokes nothing. A file with a fault takes no revocation back. Blocks for as
    /// long as the disk needs.
    pub(crate) fn reload(&self, authorities: &[CertificateDer<'_>]) {
        let content = self.file.as_deref().map(read).transpose();
        let mut sources = self.sources();
        let is_signed =
            |list: &RevocationList| RevocationList::verify(list.der(), authorities).is_ok();
        sources.of_file.retain(is_signed);
        sources.retain_heard(is_signed);
        let content = match content {
            Ok(content) => content.unwrap_or_default(),
            Err(error) => {
                tracing::warn!(%error, "the file of revoked certificates can't be read");
                return;
            }
        };
        let (mut lists, faults) = revocation_lists(&content, authorities);
        if !faults.is_empty() {
            let known = std::mem::take(&mut sources.of_file);
            lists.extend(known);
            lists.sort_by(|one, other| one.der().cmp(other.der()));
            lists.dedup();
        }
        sources.of_file = lists;
        if sources.content != content {
            for fault in faults {
                tracing::warn!(%fault, "a list in the file of revoked certificates is ignored");
            }
            let revoked: BTreeSet<_> =
                sources.of_file.iter().flat_map(RevocationList::serials).collect();
            tracing::info!(?revoked, "certificates are revoked by the file");
            sources.content = content;
        }
    }

    /// Handles a list that a node sent. Returns true if it was unknown.
    ///
    /// # Errors
    /// Returns an error if the list has no effect, or its sender has to wait.
    pub(crate) fn receive(
        &self,
        from: &NodeName,
        der: &[u8],
        authorities: &[CertificateDer<'_>],
        now: Instant,
    ) -> Result<bool, RevocationError> {
        let mut sources = self.sources();
        if sources.lists().any(|list| list.der() == der) {
            return Ok(false);
        }
        // For each sender, so that none keeps the others' lists out.
        let last = sources.checked.get(from);
        if last.is_some_and(|at| now.duration_since(*at) < CHECK_PERIOD) {
            return Err(RevocationError::TooOften);
        }
        sources.checked.insert(from.clone(), now);
        let list = RevocationList::verify(der, authorities)?;
        // One list has several forms with a good signature.
        let is_known = |serial: &String| {
            let mut lists = sources.lists();
            sources.recorded.contains(serial) || lists.any(|list| list.serials().contains(serial))
        };
        if list.serials().iter().all(is_known) {
            return Ok(false);
        }
        if sources.heard.len() >= HEARD_MAX {
            return Err(RevocationError::Full);
        }
        tracing::warn!(%from, serials = ?list.serials(), "certificates are revoked by the CA");
        sources.heard.push(list);
        sources.is_unkept = true;
        Ok(true)
    }

    /// Forgets the senders that are no members any more.
    pub(crate) fn keep(&self, is_member: impl Fn(&NodeName) -> bool) {
        self.sources().checked.retain(|node, _| is_member(node));
    }

    /// Hands the serial numbers of all sources to `publish`, and returns its result. No source
    /// changes during the call, so of two callers the later one does not publish an older state.
    pub(crate) fn publish<R>(&self, publish: impl FnOnce(BTreeSet<String>) -> R) -> R {
        let sources = self.sources();
        let listed = sources.lists().flat_map(RevocationList::serials);
        publish(listed.chain(&sources.recorded).cloned().collect())
    }

    /// Returns the serial numbers that only lists have.
    pub(crate) fn unrecorded(&self) -> BTreeSet<String> {
        let sources = self.sources();
        let listed = sources.lists().flat_map(RevocationList::serials);
        listed.filter(|serial| !sources.recorded.contains(*serial)).cloned().collect()
    }

    /// Returns the lists that other nodes have to know: those that the records do not have.
    pub(crate) fn to_send(&self) -> Vec<Bytes> {
        let sources = self.sources();
        let is_needed = |list: &&RevocationList| {
            list.der().len() <= SENT_BYTES_MAX && !list.serials().is_subset(&sources.recorded)
        };
        let lists = sources.lists().filter(is_needed);
        lists.map(|list| Bytes::copy_from_slice(list.der())).collect()
    }

    fn sources(&self) -> MutexGuard<'_, Sources> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sources {
    fn lists(&self) -> impl Iterator<Item = &RevocationList> {
        self.of_file.iter().chain(&self.heard)
    }

    fn retain_heard(&mut self, counts: impl Fn(&RevocationList) -> bool) {
        let before = self.heard.len();
        self.heard.retain(counts);
        self.is_unkept |= self.heard.len() < before;
    }
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let length = match std::fs::metadata(path) {
        Ok(found) => found.len(),
        // The file is made when the first certificate is revoked.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    if length > FILE_BYTES_MAX {
        return Err(std::io::Error::other(format!("{length} bytes are too many for it")));
    }
    std::fs::read(path)
}

/// Writes a file: all of it, even after a loss of power, or the former one stays.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use rustls::pki_types::CertificateRevocationListDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;
    use crate::certs::{Authority, Validity, certificates_of_pem};

    fn list(authority: &Authority, serial: &str) -> Vec<u8> {
        let pem = authority.revoke(serial, SystemTime::now()).unwrap();
        CertificateRevocationListDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
    }

    #[test]
    fn a_sender_of_junk_keeps_no_list_of_others_out_and_fills_nothing() {
        let validity = Validity::days(SystemTime::now(), 1).unwrap();
        let [own, other] = [(), ()].map(|()| Authority::new("test", validity).unwrap());
        let authorities = certificates_of_pem(own.certificate_pem().as_bytes());
        let (revoked, now) = (RevokedCertificates::default(), Instant::now());
        let receive = |from: &str, der: &[u8], ms| {
            let now = now + Duration::from_millis(ms);
            revoked.receive(&from.into(), der, &authorities, now)
        };
        let signed = list(&own, "5c");
        assert_eq!(receive("a", &list(&other, "1"), 0), Err(RevocationError::NotSigned));
        assert_eq!(receive("a", b"junk", 99), Err(RevocationError::TooOften));
        assert_eq!(receive("a", &signed, 99), Err(RevocationError::TooOften));
        assert_eq!(receive("b", &signed, 99), Ok(true));
        assert_eq!(receive("a", &list(&own, "6d"), 100), Ok(true), "a refused one takes no turn");
        assert_eq!(receive("a", &signed, 150), Ok(false), "what is known costs nothing");
        let expected = ["5c", "6d"].map(str::to_owned).into();
        assert_eq!(revoked.publish(|all| all), expected);
        for number in 0..2 * HEARD_MAX {
            let der = list(&own, &format!("{:x}", number + 0x100));
            let heard = receive(&format!("n{number}"), &der, 200);
            assert_eq!(heard.is_ok(), number < HEARD_MAX - 2, "{number}: {heard:?}");
        }
    }

    /// Until a node has the next CA, a list of that CA does not count; a list of a CA that is not
    /// trusted any more ends.
    #[test]
    fn lists_are_checked_again_when_the_authorities_change() {
        let validity = Validity::days(SystemTime::now(), 1).unwrap();
        let [old, new] = [(), ()].map(|()| Authority::new("test", validity).unwrap());
        let of =
            |authority: &Authority| certificates_of_pem(authority.certificate_pem().as_bytes());
        let revoked = RevokedCertificates::default();
        let heard = revoked.receive(&"a".into(), &list(&old, "5c"), &of(&old), Instant::now());
        assert_eq!(heard, Ok(true));
        revoked.reload(&[of(&old), of(&new)].concat());
        assert_eq!(revoked.publish(|all| all).len(), 1);
        revoked.reload(&of(&new));
        assert!(revoked.publish(|all| all).is_empty());
    }

    /// A node that starts while no other node runs must still reject a revoked one.
    #[test]
    fn what_was_heard_outlives_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("revoked-heard");
        let validity = Validity::days(SystemTime::now(), 1).unwrap();
        let [own, other] = [(), ()].map(|()| Authority::new("test", validity).unwrap());
        let of =
            |authority: &Authority| certificates_of_pem(authority.certificate_pem().as_bytes());
        let next = |authority: &Authority| {
            let revoked = RevokedCertificates::new(None, Some(path.clone()));
            revoked.load_kept(&of(authority));
            revoked
        };
        let all = |revoked: &RevokedCertificates| revoked.publish(|all| all);
        let revoked = next(&own);
        assert!(all(&revoked).is_empty(), "there is no file yet");
        let now = Instant::now();
        for (from, serial) in [("a", "5c"), ("b", "6d")] {
            assert_eq!(
                revoked.receive(&from.into(), &list(&own, serial), &of(&own), now),
                Ok(true)
            );
            revoked.save_kept();
        }
        let expected = BTreeSet::from(["5c", "6d"].map(str::to_owned));
        assert_eq!(all(&next(&own)), expected);
        assert!(all(&next(&other)).is_empty(), "verified when it is read");
        // Lists that the cluster has recorded are not needed any more.
        revoked.set_recorded(["5c".to_owned()].into());
        revoked.save_kept();
        assert_eq!(all(&next(&own)), ["6d".to_owned()].into());
        let mut damaged = std::fs::read(&path).unwrap();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 0xff;
        std::fs::write(&path, damaged).unwrap();
        assert!(all(&next(&own)).is_empty());
        std::fs::write(&path, vec![0x30; 2 << 20]).unwrap();
        assert!(all(&next(&own)).is_empty(), "too long a file");
    }
}
