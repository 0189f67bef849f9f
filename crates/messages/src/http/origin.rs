//! Where a request comes from.

use crate::http::client_connection::ClientConnection;
use axum::http::Request;
use hyper::body::Body;
use std::sync::Arc;

/// The client connection of a request, and the number of the request on it.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) client: Arc<ClientConnection>,
    pub(crate) sequence: u32,
}

impl Drop for Origin {
    /// The request has been answered or abandoned.
    fn drop(&mut self) {
        self.client.request_ended();
    }
}

impl Origin {
    /// A request whose head is complete.
    pub(crate) fn of<B: Body>(client: &Arc<ClientConnection>, request: &Request<B>) -> Origin {
        let sequence = client.request_began(request, request.body().size_hint().exact());
        Origin { client: client.clone(), sequence }
    }
}
