//! gRPC as far as a gateway needs it: which method is called, which model a message names, where
//! messages end, and how to say no.
//!
//! Messages stay bytes. Of the first one two fields are read, by hand: generated types would copy
//! every tensor, and would tie the gateway to one version of each service.

mod answer;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod messages;
mod method;
mod parameters;
mod peek;
mod status;
mod timeout;
mod walk;
mod wire;

pub use answer::{
    Serving, health_answer, health_service, server_flag_answer, server_metadata_answer,
};
pub use messages::{MODEL_BYTES_MAX, MessageFault, Messages};
pub use method::{GrpcMethod, speaks_grpc};
pub use peek::{ModelRef, Peek, check_parameters, peek_model, read_model, rewrite_model};
pub use status::{
    GRPC_ACCEPT_ENCODING, GRPC_MESSAGE, GRPC_STATUS, GrpcStatus, reply_fault, status_in,
    trailers_of,
};
pub use timeout::{GRPC_TIMEOUT, format_timeout, parse_timeout};

/// Bytes in front of each message: whether it is compressed, and its length.
pub const FRAME_HEAD_BYTES: usize = 5;
