// Send sends a message with pgx in a transaction with a row of its own, and rolls another one back. Its argument is the URL of the database.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// buy stores a purchase and sends its message, both or neither.
func buy(ctx context.Context, connection *pgx.Conn, customer string, item []byte, fails bool) (number int64, err error) {
	err = pgx.BeginFunc(ctx, connection, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO purchase (customer) VALUES ($1)", customer); err != nil {
			return err
		}
		row := tx.QueryRow(ctx, "SELECT waystage_send($1, $2::bytea, $3, receiver => $4, delay => $5)", "orders", item, "shop", customer, "0")
		if err := row.Scan(&number); err != nil {
			return err
		}
		if fails {
			return errors.New("the payment failed")
		}
		return nil
	})
	return number, err
}

func main() {
	ctx := context.Background()
	connection, err := pgx.Connect(ctx, os.Args[1])
	if err != nil {
		panic(err)
	}
	defer connection.Close(ctx)
	number, err := buy(ctx, connection, "bob", []byte("two apples"), false)
	fmt.Println(number > 0, err)
	_, err = buy(ctx, connection, "bob", []byte("two pears"), true)
	fmt.Println(err)
	_, err = connection.Exec(ctx, "SELECT waystage_send('nowhere', 'x', 'shop')")
	var refused *pgconn.PgError
	fmt.Println(errors.As(err, &refused), refused.Code, refused.Detail)
	var ids []int64
	err = connection.QueryRow(ctx, "SELECT waystage_send_batch($1, $2::text[], $3)", "orders", []string{"a", "b"}, "shop").Scan(&ids)
	fmt.Println(len(ids), err)
}
