//! The recipe: each row keeps the fence of whoever wrote it last, and the statement that writes compares.
//!
//! ```sql
//! CREATE TABLE ledger (
//!     name  TEXT PRIMARY KEY,
//!     fence INTEGER NOT NULL,
//!     value INTEGER NOT NULL
//! ) STRICT;
//!
//! -- The write. No row changed: a newer leader wrote; stop working.
//! INSERT INTO ledger (name, fence, value) VALUES (:name, :fence, :value)
//!     ON CONFLICT (name) DO UPDATE SET fence = excluded.fence, value = excluded.value
//!     WHERE ledger.fence <= excluded.fence;
//! ```
//!
//! Compare and write are one statement, so nothing comes between them. `<=` and not `<`: a leader writes more than
//! once. A fence has 53 bits and fits a signed INTEGER.
//!
//! **A row protects itself alone.** A new leader that has not written a row yet has not raised its fence there, and
//! the old one still gets through. Where a leader writes several rows, or reads before it writes, keep one fence for
//! all of them, raise it first ([`begin`]), and do everything in the same transaction:
//!
//! ```sql
//! BEGIN IMMEDIATE;
//! UPDATE leader SET fence = :fence WHERE fence <= :fence;   -- no row changed: ROLLBACK, and stop working
//! -- … any statements …
//! COMMIT;
//! ```

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};

/// The answer to a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a write that was refused did not happen"]
pub(crate) enum Write {
    /// It is written.
    Done,
    /// A newer leader wrote. Nothing was changed.
    Stale {
        /// Its fence.
        newest: u64,
    },
}

/// Opens the database, and makes its tables when there are none.
pub(crate) fn open(path: &Path) -> rusqlite::Result<Connection> {
    let database = Connection::open(path)?;
    database.busy_timeout(Duration::from_secs(10))?;
    database.execute_batch(
        "CREATE TABLE IF NOT EXISTS ledger (
             name  TEXT PRIMARY KEY,
             fence INTEGER NOT NULL,
             value INTEGER NOT NULL
         ) STRICT;
         CREATE TABLE IF NOT EXISTS leader (
             one   INTEGER PRIMARY KEY CHECK (one = 1),
             fence INTEGER NOT NULL
         ) STRICT;
         INSERT OR IGNORE INTO leader (one, fence) VALUES (1, 0);",
    )?;
    Ok(database)
}

/// Writes one row, unless a newer leader has written it.
pub(crate) fn write(
    database: &Connection,
    name: &str,
    fence: u64,
    value: i64,
) -> rusqlite::Result<Write> {
    let changed = database.execute(
        "INSERT INTO ledger (name, fence, value) VALUES (?1, ?2, ?3)
             ON CONFLICT (name) DO UPDATE SET fence = excluded.fence, value = excluded.value
             WHERE ledger.fence <= excluded.fence",
        params![name, fence, value],
    )?;
    match changed {
        0 => {
            let newest = read(database, name)?.map_or(0, |(newest, _)| newest);
            Ok(Write::Stale { newest })
        }
        _ => Ok(Write::Done),
    }
}

/// The row: its fence and its value.
pub(crate) fn read(database: &Connection, name: &str) -> rusqlite::Result<Option<(u64, i64)>> {
    let sql = "SELECT fence, value FROM ledger WHERE name = ?1";
    database
        .query_row(sql, [name], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
}

/// Begins a transaction under one fence for the whole database; `None` when a newer leader has begun one. From its
/// commit on, older leaders are refused, whichever rows they mean.
#[allow(
    dead_code,
    reason = "the program writes one row; the test of the recipe runs this as well"
)]
pub(crate) fn begin(
    database: &mut Connection,
    fence: u64,
) -> rusqlite::Result<Option<Transaction<'_>>> {
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let sql = "UPDATE leader SET fence = ?1 WHERE fence <= ?1";
    let changed = transaction.execute(sql, [fence])?;
    // Dropped, a transaction is rolled back.
    Ok((changed == 1).then_some(transaction))
}
