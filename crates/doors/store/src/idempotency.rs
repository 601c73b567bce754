//! Requests that may come again: each is done once, and answered again with the same words.

use crate::database::{Columns, Tx};
use crate::{Store, StoreError, now_ms};

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub body: String,
}

/// What a key means at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// Never seen: whoever asked has it now and must [`finish`](Store::finish_request) or
    /// [`give up`](Store::give_up_request).
    Taken,
    Answered(Reply),
    /// Somebody is at it.
    UnderWay,
    /// The daemon that was at it is gone, and nobody knows how far it came.
    Unknown,
    /// The key was used for something else.
    OtherRequest,
}

impl Store {
    /// `request` stands for all that was asked.
    pub fn claim_request(
        &self,
        tenant: &str,
        key: &str,
        request: &str,
    ) -> Result<Claim, StoreError> {
        self.write(|tx| {
            let taken = tx.execute(
                "INSERT INTO replies (tenant, key, request, engine, state, made_ms)
                 VALUES ($1, $2, $3, $4, 'under-way', $5) ON CONFLICT DO NOTHING",
                &[
                    tenant.into(),
                    key.into(),
                    request.into(),
                    self.engine.as_str().into(),
                    now_ms().into(),
                ],
            )?;
            if taken == 1 {
                return Ok(Claim::Taken);
            }
            let rows = tx.query(
                "SELECT request, state, status, body FROM replies WHERE tenant = $1 AND key = $2",
                &[tenant.into(), key.into()],
            )?;
            let row = rows.into_iter().next().ok_or(StoreError::Damaged("a key without a row"))?;
            let mut row = Columns::of(row);
            if row.text()? != request {
                return Ok(Claim::OtherRequest);
            }
            let state = row.text()?;
            let (status, body) = (row.optional_number()?, row.optional_text()?);
            Ok(match (state.as_str(), status, body) {
                ("answered", Some(status), Some(body)) => {
                    Claim::Answered(Reply { status: u16::try_from(status).unwrap_or(500), body })
                }
                ("under-way", ..) => Claim::UnderWay,
                _ => Claim::Unknown,
            })
        })
    }

    pub fn finish_request(&self, tenant: &str, key: &str, reply: &Reply) -> Result<(), StoreError> {
        self.write(|tx| {
            tx.execute(
                "UPDATE replies SET state = 'answered', status = $3, body = $4
                 WHERE tenant = $1 AND key = $2",
                &[
                    tenant.into(),
                    key.into(),
                    i64::from(reply.status).into(),
                    reply.body.as_str().into(),
                ],
            )?;
            Ok(())
        })
    }

    /// Nothing was done: the same may be asked again.
    pub fn give_up_request(&self, tenant: &str, key: &str) -> Result<(), StoreError> {
        self.write(|tx| {
            tx.execute(
                "DELETE FROM replies WHERE tenant = $1 AND key = $2 AND state = 'under-way'",
                &[tenant.into(), key.into()],
            )?;
            Ok(())
        })
    }
}

pub(crate) fn lose_all(tx: &mut dyn Tx, engine: &str) -> Result<(), StoreError> {
    tx.execute(
        "UPDATE replies SET state = 'unknown' WHERE engine = $1 AND state = 'under-way'",
        &[engine.into()],
    )?;
    Ok(())
}
