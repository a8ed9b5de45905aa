//! Usage of clients and its costs: bills, prices, sums by tenant, key and model, days, and budgets.
//!
//! Sums of money are exact: an amount is a whole number of millionths of a millionth of a unit of
//! the currency, and no floating point number is ever added. Time comes in as an argument.

mod bill;
mod budget;
mod day;
mod lines;
mod money;
mod price;
mod query;
mod spending;

pub use bill::{
    Bill, Ending, MEDIA_TOKEN_BYTES, REPORTED_TOKENS_MAX, ReplyKind, ReplyTokens, RequestTokens,
    TOKEN_BYTES, bill,
};
pub use budget::{Budget, BudgetGate, BudgetPeriod, BudgetSpent};
pub use day::Day;
pub use lines::{LINES_MAX, LineKey, OTHER, UsageLine, UsageLines, Used};
pub use money::{Money, MoneyError};
pub use price::{Price, PriceList};
pub use query::{UsageBy, UsageQuery, UsageRow, UsageTable};
pub use spending::{NodeSpending, Spending, SpendingBook};
