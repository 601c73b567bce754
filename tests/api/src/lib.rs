//! Tests of the daemon as its clients meet it. See `support` for what they stand on.

#[cfg(test)]
mod approvals;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod entrances;
#[cfg(test)]
mod ledger;
#[cfg(test)]
mod load;
#[cfg(test)]
mod meters;
#[cfg(test)]
mod page;
#[cfg(test)]
mod reach;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod same;
#[cfg(test)]
mod sandboxes;
#[cfg(test)]
mod schema;
#[cfg(test)]
mod share;
#[cfg(test)]
mod shared;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tenants;
#[cfg(test)]
mod terminal;
#[cfg(test)]
mod tools;
#[cfg(test)]
mod traces;
#[cfg(test)]
mod warm;
