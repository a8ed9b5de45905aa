//! Ways in which a TLS handshake with a replica fails.

use std::fmt;

/// Way in which a TLS handshake with a replica failed, as far as it shows what to correct.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TlsFault {
    /// The server answered with something that is not TLS.
    NotTls,
    /// No trusted CA issued the server's certificate.
    UnknownIssuer,
    /// The server's certificate is for another name.
    WrongName,
    /// The server's certificate has expired, or is not valid yet.
    Expired,
    /// The server demands a client certificate, or did not accept the one that it got.
    ClientCertificate,
    /// Client and server have no version, cipher suite or protocol in common.
    NoCommonProtocol,
    /// Any other way; the log has it.
    Other,
}

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotTls => "the server does not speak TLS",
            Self::UnknownIssuer => "no trusted CA issued its certificate",
            Self::WrongName => "its certificate is for another name",
            Self::Expired => "its certificate is not valid now",
            Self::ClientCertificate => "it demands a client certificate",
            Self::NoCommonProtocol => "no TLS version or protocol in common",
            Self::Other => "see the log",
        })
    }
}
