//! A terminal as a client: its transactions in the standard's mix.

use qpair::Result;

use super::terminal::Terminal;
use crate::harness::{Client, Done};
use crate::kv::KvSession;
use crate::tpcc::inputs::{Delivery, NewOrder, OrderStatus, Payment, StockLevel, Type};

/// A transaction and its inputs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Inputs {
    NewOrder(NewOrder),
    Payment(Payment),
    OrderStatus(OrderStatus),
    Delivery(Delivery),
    StockLevel(StockLevel),
}

impl<S: KvSession> Terminal<S> {
    /// Draws the inputs of a transaction.
    pub(crate) fn inputs(&mut self, kind: Type) -> Inputs {
        let (random, scale) = (&mut self.random, &self.common.scale);
        match kind {
            Type::NewOrder => Inputs::NewOrder(NewOrder::random(random, scale)),
            Type::Payment => Inputs::Payment(Payment::random(random, scale)),
            Type::OrderStatus => Inputs::OrderStatus(OrderStatus::random(random, scale)),
            Type::Delivery => Inputs::Delivery(Delivery::random(random, scale)),
            Type::StockLevel => Inputs::StockLevel(StockLevel::random(random, scale)),
        }
    }
}

impl<S: KvSession> Client for Terminal<S> {
    type Request = Inputs;

    fn draw(&mut self) -> Option<Inputs> {
        let kind = Type::random(&mut self.random);
        Some(self.inputs(kind))
    }

    async fn attempt(&mut self, inputs: &Inputs) -> Result<Done> {
        match inputs {
            Inputs::NewOrder(inputs) => self.new_order(inputs).await,
            Inputs::Payment(inputs) => self.payment(inputs).await,
            Inputs::OrderStatus(inputs) => self.order_status(inputs).await,
            Inputs::Delivery(inputs) => self.delivery(inputs).await,
            Inputs::StockLevel(inputs) => self.stock_level(inputs).await,
        }
    }

    async fn rollback(&mut self) -> Result<()> {
        self.session.rollback().await
    }
}
