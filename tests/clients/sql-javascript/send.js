// Sends a message with node-postgres in a transaction with a row of its own, and rolls another one back. Its argument is the URL of the
// database.
const { Client } = require("pg");

/** Stores a purchase and sends its message, both or neither. */
async function buy(client, customer, item, fails) {
  await client.query("BEGIN");
  try {
    await client.query("INSERT INTO purchase (customer) VALUES ($1)", [customer]);
    const sent = await client.query("SELECT waystage_send($1, $2::bytea, $3, receiver => $4) AS id", ["orders", item, "shop", customer]);
    if (fails) throw new Error("the payment failed");
    await client.query("COMMIT");
    return sent.rows[0].id;
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  }
}

async function main() {
  const client = new Client({ connectionString: process.argv[2] });
  await client.connect();
  console.log(Number(await buy(client, "bob", Buffer.from("two apples"), false)) > 0);
  await buy(client, "bob", Buffer.from("two pears"), true).catch((error) => console.log(error.message));
  await client.query("SELECT waystage_send('nowhere', 'x', 'shop')").catch((error) => console.log(error.code, error.detail));
  const batch = await client.query("SELECT waystage_send_batch($1, $2::text[], $3) AS ids", ["orders", ["a", "b"], "shop"]);
  console.log(batch.rows[0].ids.length);
  await client.query("SELECT waystage_send('orders', $1::jsonb, 'shop')", [{ apples: 2 }]);
  await client.end();
}

main();
