//! Random secrets of the format.

use zeroize::Zeroizing;

use super::error::SealError;

/// The secret that encrypts a file's content: wrapped in its header for each recipient.
pub(super) type FileKey = Zeroizing<[u8; 16]>;

/// Returns random bytes.
///
/// # Errors
/// Returns an error if the system has no random numbers.
pub(super) fn random<const BYTES: usize>() -> Result<[u8; BYTES], SealError> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(SealError::NoRandomness)?;
    Ok(bytes)
}
