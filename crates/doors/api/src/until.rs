//! Streams for a caller last until the caller's grant ends.

use std::sync::Arc;

use axum::extract::ws::{Message, WebSocket};
use ringwall_desk::{Books, Caller, Lease, Refused, Watched};
use tokio::sync::watch;

/// Ends when the grant does, and the record says so. It is watched no more when this goes.
#[derive(Debug)]
pub(crate) struct Until {
    lease: Lease,
    ended: watch::Receiver<bool>,
}

impl Until {
    /// `what` is for the record.
    pub(crate) fn of(books: &Arc<Books>, caller: &Caller, what: String) -> Until {
        let (end, ended) = watch::channel(false);
        let end = Box::new(move || {
            end.send_replace(true);
        });
        Until { lease: books.lease(caller, Watched { what, end }), ended }
    }

    pub(crate) fn is_over(&self) -> bool {
        *self.ended.borrow()
    }

    /// Ready when the grant has ended. The owner never has that.
    pub(crate) async fn over(&mut self) {
        if self.ended.wait_for(|ended| *ended).await.is_err() {
            // The owner has no grant that could end.
            std::future::pending().await
        }
    }

    /// Shows a client a message. A client that takes nothing is given up when the grant has ended, and gets
    /// later messages only if it takes them at once.
    pub(crate) async fn show(&mut self, socket: &mut WebSocket, message: Message) -> bool {
        tokio::select! {
            biased;
            shown = socket.send(message) => shown.is_ok(),
            () = self.over() => false,
        }
    }

    /// Looks now, rather than at the next look at all grants.
    pub(crate) fn look(&self) -> Result<(), Refused> {
        self.lease.look()
    }
}
