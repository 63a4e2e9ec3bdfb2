"""The pages on which people buy: products, prices and receipts come in; /pricing, /pricing/<product> and /keys/receipt go out."""
